// Package cli is the command line of the apiary program: it names the commands and their settings, and runs
// the one that was asked for.
//
// It owns no work of its own: serving is package serve, talking to a relay package client, and the
// operator's commands package operator. Signals, streams and exit codes are package boot's. Everything
// happens on the caller's goroutine.
package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"github.com/apiary-relay/apiary/pkg/buildinfo"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/services/apiary"
	"github.com/apiary-relay/apiary/services/apiary/internal/serve"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

// env is what a command works with.
type env struct {
	boot.Streams
	in io.Reader
	// program is how the user called us, for the commands that the output suggests.
	program string
	loaded  *config.Loaded
}

// Commands is the grammar of the program.
type Commands struct {
	Serve  serveCmd `cmd:"" help:"Run everything in one process."`
	Client struct {
		Listen    listenCmd       `cmd:"" help:"Print events as they come."`
		Publish   publishCmd      `cmd:"" help:"Publish an event."`
		Query     queryCmd        `cmd:"" help:"Print stored events, oldest first."`
		Whoami    whoamiCmd       `cmd:"" help:"Print the public key, in hex and as npub."`
		Ping      pingCmd         `cmd:"" help:"Publish an event and wait until it comes back live, on a second connection."`
		Reply     replyCmd        `cmd:"" help:"Answer a message in its thread."`
		React     reactCmd        `cmd:"" help:"React to an event."`
		Edit      editCmd         `cmd:"" help:"Replace the text of a message of one's own in a channel."`
		Delete    deleteCmd       `cmd:"" help:"Delete an event of one's own, or as an admin of its channel another's."`
		Channel   channelCommands `cmd:"" help:"Make channels and change their members."`
		DM        dmCommands      `cmd:"" name:"dm" help:"Open conversations (direct messages) with a few others."`
		Invite    inviteCmd       `cmd:"" help:"Have an invite code for the community made, and print it."`
		Join      joinCmd         `cmd:"" help:"Join the community with an invite code."`
		Leave     leaveCmd        `cmd:"" help:"Leave the community."`
		Ban       banCmd          `cmd:"" help:"Ban a key from the community."`
		Unban     unbanCmd        `cmd:"" help:"Lift a ban."`
		Timeout   timeoutCmd      `cmd:"" help:"Let a key read and not write for a time."`
		Untimeout untimeoutCmd    `cmd:"" help:"Lift a timeout."`
		Report    reportCmd       `cmd:"" help:"Report an event to the moderators."`
		Resolve   resolveCmd      `cmd:"" help:"Decide what is done about a report."`
		Sign      signCmd         `cmd:"" help:"Print an event, signed, instead of publishing it."`
		Attest    attestCmd       `cmd:"" help:"Print what attests that a key is an agent of one's own (NIP-OA)."`
		Authorize authorizeCmd    `cmd:"" help:"Print the header that authorizes an HTTP request, for curl (NIP-98)."`
	} `cmd:"" help:"Talk to a relay."`
	Community struct {
		List         communityListCmd    `cmd:"" help:"List the communities."`
		Create       communityCreateCmd  `cmd:"" help:"Create a community for a host."`
		Set          communitySetCmd     `cmd:"" help:"Open, close, rename or describe a community, or say what kinds it takes."`
		Alias        aliasCmd            `cmd:"" help:"Give a community another host, or take one from it."`
		Transfer     transferCmd         `cmd:"" help:"Give a community to another owner; the one before becomes a member."`
		Archive      archiveCmd          `cmd:"" help:"Serve a community to nobody; nothing of it is lost."`
		Unarchive    unarchiveCmd        `cmd:"" help:"Serve an archived community again."`
		Delete       communityDeleteCmd  `cmd:"" help:"Remove everything of an archived community, in the background; its hosts stay taken."`
		Release      releaseCmd          `cmd:"" help:"Let a host go that a deleted community had, so that another can have it."`
		Members      communityMembersCmd `cmd:"" help:"List the members of a community."`
		MemberAdd    memberAddCmd        `cmd:"" help:"Add a member, or change its role."`
		MemberRemove memberRemoveCmd     `cmd:"" help:"Remove a member; no later event reaches it."`
	} `cmd:"" help:"List and change communities and their members."`
	Migrate struct {
		Up     migrateUpCmd     `cmd:"" help:"Bring the database schema up to date."`
		Status migrateStatusCmd `cmd:"" help:"List the migrations."`
	} `cmd:"" help:"Change the database schema."`
	Config struct {
		Print configPrintCmd `cmd:"" help:"Print the settings of serve in effect, as a file that --config reads."`
		Check configCheckCmd `cmd:"" help:"Check the settings of serve without running it."`
		Doc   configDocCmd   `cmd:"" help:"Print the reference of the settings of serve."`
	} `cmd:"" help:"Look at settings."`
	Healthcheck healthcheckCmd `cmd:"" help:"Ask a running process whether it is ready; for container probes."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
	VersionFlag versionFlag    `name:"version" help:"Print the version and exit." env:"-"`

	in      io.Reader
	program string
}

// New returns the grammar with its defaults. program is how the user called the program, in its standard
// input.
func New(program string, in io.Reader) *Commands {
	c := &Commands{program: program, in: in}
	for _, settings := range []*serve.Config{
		&c.Serve.Settings, &c.Config.Print.Settings, &c.Config.Check.Settings, &c.Config.Doc.Settings,
	} {
		*settings = serve.DefaultConfig()
	}
	return c
}

// command is what every command implements.
type command interface {
	run(ctx context.Context, env env) error
}

// byName finds the selected command.
func (c *Commands) byName(name string) command {
	return map[string]command{
		"serve":                   &c.Serve,
		"client listen":           &c.Client.Listen,
		"client publish":          &c.Client.Publish,
		"client query":            &c.Client.Query,
		"client whoami":           &c.Client.Whoami,
		"client ping":             &c.Client.Ping,
		"client reply":            &c.Client.Reply,
		"client react":            &c.Client.React,
		"client edit":             &c.Client.Edit,
		"client delete":           &c.Client.Delete,
		"client channel create":   &c.Client.Channel.Create,
		"client channel add":      &c.Client.Channel.Add,
		"client channel remove":   &c.Client.Channel.Remove,
		"client channel join":     &c.Client.Channel.Join,
		"client channel leave":    &c.Client.Channel.Leave,
		"client channel delete":   &c.Client.Channel.Delete,
		"client dm open":          &c.Client.DM.Open,
		"client dm add":           &c.Client.DM.Add,
		"client dm hide":          &c.Client.DM.Hide,
		"client invite":           &c.Client.Invite,
		"client join":             &c.Client.Join,
		"client leave":            &c.Client.Leave,
		"client ban":              &c.Client.Ban,
		"client unban":            &c.Client.Unban,
		"client timeout":          &c.Client.Timeout,
		"client untimeout":        &c.Client.Untimeout,
		"client report":           &c.Client.Report,
		"client resolve":          &c.Client.Resolve,
		"client sign":             &c.Client.Sign,
		"client attest":           &c.Client.Attest,
		"client authorize":        &c.Client.Authorize,
		"community list":          &c.Community.List,
		"community create":        &c.Community.Create,
		"community set":           &c.Community.Set,
		"community alias":         &c.Community.Alias,
		"community transfer":      &c.Community.Transfer,
		"community archive":       &c.Community.Archive,
		"community unarchive":     &c.Community.Unarchive,
		"community delete":        &c.Community.Delete,
		"community release":       &c.Community.Release,
		"community members":       &c.Community.Members,
		"community member-add":    &c.Community.MemberAdd,
		"community member-remove": &c.Community.MemberRemove,
		"migrate up":              &c.Migrate.Up,
		"migrate status":          &c.Migrate.Status,
		"config print":            &c.Config.Print,
		"config check":            &c.Config.Check,
		"config doc":              &c.Config.Doc,
		"healthcheck":             &c.Healthcheck,
		"version":                 &c.Version,
	}[name]
}

// usageError is a mistake on the command line that the grammar does not know of.
type usageError struct{ message string }

func (e usageError) Error() string { return e.message }

// Is makes it end the program with the code of a bad configuration.
func (usageError) Is(target error) bool { return target == boot.ErrConfig }

// Run runs the selected command until it is done or ctx is.
func (c *Commands) Run(ctx context.Context, loaded *config.Loaded, std boot.Streams) error {
	return c.byName(loaded.Command()).run(ctx, env{Streams: std, in: c.in, program: c.program, loaded: loaded})
}

// Same tells package config which settings of serve are one.
func (*Commands) Same() [][]string { return apiary.Same() }

type versionCmd struct{}

func (*versionCmd) run(_ context.Context, env env) error { return printVersion(env.Out) }

// versionFlag is for those who try --version, as with other programs, where a command is wanted.
type versionFlag bool

// BeforeReset is called before anything else is wanted of the command line.
func (versionFlag) BeforeReset(program *kong.Kong) error {
	err := printVersion(program.Stdout)
	program.Exit(0)
	return err
}

func printVersion(out io.Writer) error {
	_, err := fmt.Fprintln(out, "apiary", buildinfo.Read())
	return err
}
