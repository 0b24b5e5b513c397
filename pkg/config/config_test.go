package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
)

type store struct {
	URL      config.Secret `help:"Where." env:"APIARY_STORE_URL,DATABASE_URL"`
	Plain    string        `help:"Also secret." secret:""`
	MaxConns int           `help:"Most connections." default:"10"`
	Timeout  time.Duration `help:"Longest statement." default:"1m"`
}

func (s *store) Validate() error {
	if s.MaxConns < 1 {
		return fmt.Errorf("max-conns is %d", s.MaxConns)
	}
	return nil
}

func (s *store) Warnings() []string {
	if s.MaxConns > 100 {
		return []string{"max-conns is large"}
	}
	return nil
}

type app struct {
	Listen string     `help:"Address."`
	Peers  []string   `help:"Others | all."`
	Level  slog.Level `help:"Level." default:"info"`
	Mode   string     `help:"Mode." enum:"a,b" default:"a"`
	Fast   bool       `help:"Fast."`
	Ratio  float64    `help:"Ratio." default:"0.5"`
	Test   int        `help:"For tests." hidden:""`
	Action bool       `help:"Do it." env:"-"`
	Store  store      `embed:"" prefix:"store."`
	Other  store      `embed:"" prefix:"other.store."`
}

func (a *app) Validate() error {
	if a.Listen == "bad" {
		return errors.New("listen is bad")
	}
	return nil
}

// files is a file system of name and content.
func files(pairs ...string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return []byte(pairs[i+1]), nil
			}
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
}

func parse(t *testing.T, a *app, env []string, file string, args ...string) (*config.Loaded, error) {
	t.Helper()
	opts := config.Options{Environ: append([]string{}, env...), ReadFile: files("app.yaml", file, "/run/secret", "s3cret\n")}
	return config.Parse("app", a, args, opts)
}

func TestPrecedence(t *testing.T) {
	const file = "store: {max-conns: 3}"
	env := []string{"APIARY_STORE_MAX_CONNS=4", "APIARY_CONFIG=app.yaml"}
	for _, c := range []struct {
		name   string
		preset int
		env    []string
		args   []string
		want   int
		source config.Source
	}{
		{"tag", 0, nil, nil, 10, config.Source{Kind: config.FromDefault}},
		{"preset", 2, nil, nil, 2, config.Source{Kind: config.FromDefault}},
		{"file by variable", 2, env[1:], nil, 3, config.Source{Kind: config.FromFile, Name: "app.yaml"}},
		{"file by flag", 2, nil, []string{"--config", "app.yaml"}, 3, config.Source{Kind: config.FromFile, Name: "app.yaml"}},
		{"file by flag with =", 2, nil, []string{"--config=app.yaml"}, 3, config.Source{Kind: config.FromFile, Name: "app.yaml"}},
		{"environment", 2, env, nil, 4, config.Source{Kind: config.FromEnv, Name: "APIARY_STORE_MAX_CONNS"}},
		{"empty variable", 2, append([]string{"APIARY_STORE_MAX_CONNS="}, env[1:]...), nil, 3, config.Source{Kind: config.FromFile, Name: "app.yaml"}},
		{"flag", 2, env, []string{"--store.max-conns=5"}, 5, config.Source{Kind: config.FromFlag, Name: "--store.max-conns"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := app{Store: store{MaxConns: c.preset}}
			l, err := parse(t, &a, c.env, file, c.args...)
			require.NoError(t, err)
			require.Equal(t, c.want, a.Store.MaxConns)
			require.Equal(t, 10, a.Other.MaxConns)
			require.Equal(t, c.source, setting(t, l, "store.max-conns").Source)
		})
	}
}

func setting(t *testing.T, l *config.Loaded, name string) config.Setting {
	t.Helper()
	for _, s := range l.Settings() {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no setting "+name)
	return config.Setting{}
}

func TestExplicitVariablesComeAfterTheDerivedOne(t *testing.T) {
	var a app
	_, err := parse(t, &a, []string{"DATABASE_URL=postgres://shared"}, "")
	require.NoError(t, err)
	require.Equal(t, "postgres://shared", a.Store.URL.Reveal())
	require.Equal(t, "postgres://shared", a.Other.URL.Reveal())

	a = app{}
	l, err := parse(t, &a, []string{"DATABASE_URL=postgres://shared", "APIARY_OTHER_STORE_URL=postgres://own", "APIARY_STORE_URL=postgres://store"}, "")
	require.NoError(t, err)
	require.Equal(t, "postgres://store", a.Store.URL.Reveal())
	require.Equal(t, "postgres://own", a.Other.URL.Reveal())
	require.Equal(t, []string{"APIARY_OTHER_STORE_URL", "APIARY_STORE_URL", "DATABASE_URL"}, setting(t, l, "other.store.url").Envs)
}

func TestAllTypesFromAFile(t *testing.T) {
	const file = `
listen: "0.0.0.0:1"
peers: [ "a:1", "b,c:2" ]
level: debug
mode: b
fast: true
ratio: 0.25
store:
  url: postgres://x
  timeout: 5s
  max-conns: null
other: {store: {max-conns: 7}}
`
	var a app
	l, err := parse(t, &a, []string{"APIARY_CONFIG=app.yaml"}, file)
	require.NoError(t, err)
	require.Equal(t, app{
		Listen: "0.0.0.0:1", Peers: []string{"a:1", "b,c:2"}, Level: slog.LevelDebug, Mode: "b", Fast: true, Ratio: .25,
		Store: store{URL: config.NewSecret("postgres://x"), MaxConns: 10, Timeout: 5 * time.Second},
		Other: store{MaxConns: 7, Timeout: time.Minute},
	}, a)

	// What is printed can be read again and means the same.
	var out strings.Builder
	require.NoError(t, l.Print(&out, false))
	a.Store.URL = config.NewSecret("redacted")
	var again app
	_, err = parse(t, &again, []string{"APIARY_CONFIG=app.yaml"}, out.String())
	require.NoError(t, err, out.String())
	require.Equal(t, a, again)
}

func TestListsFromFlagAndEnvironment(t *testing.T) {
	var a app
	_, err := parse(t, &a, []string{"APIARY_PEERS=a:1,b:2"}, "")
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, a.Peers)
	a = app{Peers: []string{"preset:1"}}
	_, err = parse(t, &a, nil, "")
	require.NoError(t, err)
	require.Equal(t, []string{"preset:1"}, a.Peers)
	_, err = parse(t, &a, []string{"APIARY_CONFIG=app.yaml"}, "peers: []")
	require.NoError(t, err)
	require.Empty(t, a.Peers)
}

func TestFileMistakes(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"lisen: x", "line 1: unknown key lisen"},
		{"store:\n  max-con: 1\n  url: x\nhelp: true\nconfig: x", "line 2: unknown key store.max-con"},
		{"listen: a\nlisten: b", "line 2: key listen is there twice"},
		{"listen: {a: 1}", "line 1: listen: want a plain value"},
		{"listen: [a]", "want a plain value"},
		{"peers: [[a]]", "want a list of plain values"},
		{"store: 3", "unknown key store"},
		{"- a", "want a mapping"},
		{"a: [", "app.yaml"},
		{"store: {max-conns: many}", "max-conns"},
		{"mode: c", "mode"},
		{strings.Repeat("#", 1<<20+1), "larger than"},
	} {
		_, err := parse(t, &app{}, []string{"APIARY_CONFIG=app.yaml"}, c.file)
		require.ErrorContains(t, err, c.want)
	}
	_, err := parse(t, &app{}, []string{"APIARY_CONFIG=none.yaml"}, "")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = parse(t, &app{}, []string{"APIARY_CONFIG=app.yaml"}, "\n# nothing\n")
	require.NoError(t, err)
	_, err = parse(t, &app{}, []string{"APIARY_CONFIG=app.yaml"}, `{"listen": "json:1"}`)
	require.NoError(t, err)
}

func TestEveryUnknownKeyIsNamed(t *testing.T) {
	_, err := parse(t, &app{}, []string{"APIARY_CONFIG=app.yaml"}, "x: 1\nstore: {y: 2}")
	require.ErrorContains(t, err, "unknown key x")
	require.ErrorContains(t, err, "unknown key store.y")
}

func TestMountedSecrets(t *testing.T) {
	var a app
	_, err := parse(t, &a, []string{"DATABASE_URL_FILE=/run/secret", "APIARY_STORE_PLAIN_FILE=/run/secret"}, "")
	require.NoError(t, err)
	require.Equal(t, "s3cret", a.Store.URL.Reveal())
	require.Equal(t, "s3cret", a.Store.Plain)
	_, err = parse(t, &app{}, []string{"DATABASE_URL_FILE=/none"}, "")
	require.ErrorContains(t, err, "DATABASE_URL_FILE")
	_, err = parse(t, &app{}, []string{"DATABASE_URL_FILE=/run/secret", "DATABASE_URL=x"}, "")
	require.ErrorContains(t, err, "both")
	_, err = parse(t, &app{}, []string{"APIARY_LISTEN_FILE=/none"}, "")
	require.NoError(t, err, "only secrets are read from files")
}

func TestNothingShowsASecret(t *testing.T) {
	var a app
	l, err := parse(t, &a, []string{"DATABASE_URL=hunter2", "APIARY_STORE_PLAIN=hunter2"}, "")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, l.Print(&out, false))
	require.NoError(t, l.Doc(&out))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", slog.Any("url", a.Store.URL))
	_, _ = fmt.Fprintf(&out, "%v %+v %#v %s", l.Settings(), a.Store.URL, a.Store.URL, a.Store.URL)
	require.NotContains(t, out.String(), "hunter2")
	require.True(t, a.Store.URL.IsSet())
	require.Empty(t, config.Secret{}.String())

	preset := app{Store: store{URL: config.NewSecret("hunter2")}}
	l, err = parse(t, &preset, nil, "")
	require.NoError(t, err)
	require.Equal(t, "hunter2", preset.Store.URL.Reveal())
	require.Equal(t, "redacted", setting(t, l, "store.url").Default)
}

func TestValidateJoinsEverything(t *testing.T) {
	_, err := parse(t, &app{}, nil, "", "--listen=bad", "--store.max-conns=0", "--other.store.max-conns=-1")
	require.EqualError(t, err, "listen is bad\nstore: max-conns is 0\nother.store: max-conns is -1")
}

func TestWarnings(t *testing.T) {
	l, err := parse(t, &app{}, nil, "", "--other.store.max-conns=101")
	require.NoError(t, err)
	require.Equal(t, []string{"other.store: max-conns is large"}, l.Warnings())
}

func TestCommandLineMistakes(t *testing.T) {
	for _, args := range [][]string{{"--lisen=x"}, {"stray"}, {"--ratio=x"}, {"--listen"}} {
		_, err := parse(t, &app{}, nil, "", args...)
		require.Error(t, err, args)
	}
}

func TestPrintDiff(t *testing.T) {
	a := app{Listen: "preset:1"}
	l, err := parse(t, &a, []string{"APIARY_FAST=true", "APIARY_STORE_MAX_CONNS=10"}, "", "--other.store.timeout=1s")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, l.Print(&out, true))
	require.Equal(t, "fast: true # env APIARY_FAST\nother:\n  store:\n    timeout: 1s # flag --other.store.timeout\n", out.String())

	l, err = parse(t, &app{}, nil, "")
	require.NoError(t, err)
	out.Reset()
	require.NoError(t, l.Print(&out, true))
	require.Equal(t, "# all settings have their defaults\n", out.String())
}

// A secret that was set shows in the diff, although it looks like its default.
func TestPrintDiffOfASecret(t *testing.T) {
	a := app{Store: store{URL: config.NewSecret("default")}}
	l, err := parse(t, &a, []string{"APIARY_OTHER_STORE_URL=other"}, "")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, l.Print(&out, true))
	require.Equal(t, "other:\n  store:\n    url: redacted # env APIARY_OTHER_STORE_URL\n", out.String())
}

func TestActionsAreNoSettings(t *testing.T) {
	var a app
	l, err := parse(t, &a, []string{"APIARY_ACTION=true"}, "", "--action")
	require.NoError(t, err)
	require.True(t, a.Action)
	for _, s := range l.Settings() {
		require.NotEqual(t, "action", s.Name)
	}
	a = app{}
	_, err = parse(t, &a, []string{"APIARY_ACTION=true"}, "")
	require.NoError(t, err)
	require.False(t, a.Action)
	_, err = parse(t, &app{}, []string{"APIARY_CONFIG=app.yaml"}, "action: true")
	require.ErrorContains(t, err, "unknown key action")
}

func TestDoc(t *testing.T) {
	l, err := parse(t, &app{Listen: "preset:1"}, nil, "")
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, l.Doc(&out))
	require.Contains(t, out.String(), "| `--store.url` | `APIARY_STORE_URL`, `DATABASE_URL` |  | Where. |\n")
	require.Contains(t, out.String(), "| `--listen` | `APIARY_LISTEN` | `preset:1` | Address. |\n")
	require.Contains(t, out.String(), `Others \| all.`)
	require.Contains(t, out.String(), "| `--fast` | `APIARY_FAST` | `false` | Fast. |\n")
	require.NotContains(t, out.String(), "--test")
}

func TestDocDoesNotDependOnTheConfiguration(t *testing.T) {
	l, err := parse(t, &app{}, nil, "")
	require.NoError(t, err)
	var want, got strings.Builder
	require.NoError(t, l.Doc(&want))
	l, err = parse(t, &app{}, []string{"APIARY_LISTEN=env:1", "DATABASE_URL=hunter2"}, "", "--ratio=1", "--other.store.timeout=2m")
	require.NoError(t, err)
	require.NoError(t, l.Doc(&got))
	require.Equal(t, want.String(), got.String())
}

// A secret's default is shown in the reference when everybody can read it in the source.
func TestDocOfSecrets(t *testing.T) {
	type db struct {
		URL config.Secret `help:"Where." default:"postgres://localhost"`
	}
	for preset, want := range map[string]string{"": "`postgres://localhost`", "postgres://localhost": "`postgres://localhost`", "hunter2": "`redacted`"} {
		l, err := config.Parse("app", &db{URL: config.NewSecret(preset)}, nil, config.Options{Environ: []string{}})
		require.NoError(t, err)
		var out strings.Builder
		require.NoError(t, l.Doc(&out))
		require.Contains(t, out.String(), "| `--url` | `APIARY_URL` | "+want+" | Where. |\n")
	}
}

// The same duration, written in another way, is no change.
func TestDurationsLookTheSame(t *testing.T) {
	type timers struct {
		Short time.Duration `help:"Short." default:"90s"`
		Long  time.Duration `help:"Long." default:"60m"`
	}
	l, err := config.Parse("app", &timers{}, []string{"--short=1m30s", "--long=3600s"}, config.Options{Environ: []string{}})
	require.NoError(t, err)
	for name, want := range map[string]string{"short": "1m30s", "long": "1h"} {
		s := setting(t, l, name)
		require.Equal(t, want, s.Default)
		require.Equal(t, want, s.Value)
		require.False(t, s.Changed)
	}
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	_, err := config.Parse("app", &app{}, []string{"--help"}, config.Options{Stdout: &out, Environ: []string{}, Description: "Does things."})
	require.ErrorIs(t, err, config.ErrHelp)
	require.Contains(t, out.String(), "Does things.")
	require.Contains(t, out.String(), "[$APIARY_STORE_URL, $DATABASE_URL]")
}

type commands struct {
	Serve struct {
		App app `embed:""`
	} `cmd:"" help:"Serve."`
	Config struct {
		Print struct {
			Diff bool `help:"Only what differs."`
			App  app  `embed:""`
		} `cmd:"" help:"Print."`
	} `cmd:"" help:"About the configuration."`
}

func TestCommands(t *testing.T) {
	var c commands
	opts := config.Options{Environ: []string{"APIARY_LISTEN=env:1", "APIARY_CONFIG=app.yaml"}, ReadFile: files("app.yaml", "drain: 3s\nfast: true")}
	opts.Also = []any{&struct {
		Drain string `help:"Drain." default:"10s"`
	}{}}
	l, err := config.Parse("app", &c, []string{"config", "print", "--diff"}, opts)
	require.NoError(t, err)
	require.Equal(t, "config print", l.Command())
	require.True(t, c.Config.Print.App.Fast)
	require.Equal(t, "env:1", c.Config.Print.App.Listen)
	require.Equal(t, "3s", setting(t, l, "drain").Value)

	_, err = config.Parse("app", &commands{}, []string{"serve", "--store.max-conns=0"}, opts)
	require.ErrorContains(t, err, "max-conns is 0")
	_, err = config.Parse("app", &commands{}, nil, opts)
	require.Error(t, err)
}

func TestMustDefault(t *testing.T) {
	t.Setenv("APIARY_LISTEN", "env:1")
	a := config.MustDefault(app{Mode: "b", Store: store{MaxConns: -1}})
	require.Equal(t, app{
		Mode: "b", Ratio: .5, Store: store{MaxConns: -1, Timeout: time.Minute}, Other: store{MaxConns: 10, Timeout: time.Minute},
	}, a)
	require.Panics(t, func() {
		config.MustDefault(struct {
			A int `default:"x"`
		}{})
	})
}

func TestEnvironmentOfTheProcess(t *testing.T) {
	t.Setenv("APIARY_LISTEN", "env:1")
	var a app
	_, err := config.Parse("app", &a, nil, config.Options{})
	require.NoError(t, err)
	require.Equal(t, "env:1", a.Listen)
}

func TestPorts(t *testing.T) {
	require.Equal(t, "127.0.0.1:7401", config.Loopback(config.PortIngest))
}

func TestAMistakeNamesItsCommand(t *testing.T) {
	for args, command := range map[string]string{
		"":                      "app",
		"frobnicate":            "app",
		"serve --nope":          "app serve",
		"serve --drain=soon":    "app serve",
		"config print --nope":   "app config print",
		"config print superior": "app config print",
	} {
		_, err := config.Parse("app", &commands{}, strings.Fields(args), config.Options{Environ: []string{}})
		var usage *config.UsageError
		require.ErrorAs(t, err, &usage, args)
		require.Equal(t, command, usage.Command, args)
	}
}

type Rooms struct {
	Rooms int `help:"Rooms." default:"3"`
}

func (r *Rooms) Validate() error {
	if r.Rooms < 0 {
		return errors.New("rooms is negative")
	}
	return nil
}

func TestAComplaintIsHeardOnce(t *testing.T) {
	type hotel struct { // has the Validate of Rooms
		Rooms `embed:""`
		Other Rooms `embed:"" prefix:"other."`
	}
	_, err := config.Parse("app", &hotel{}, []string{"--rooms=-1", "--other.rooms=-1"}, config.Options{Environ: []string{}})
	require.EqualError(t, err, "rooms is negative\nother: rooms is negative")
}
