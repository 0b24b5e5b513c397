package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// ErrHelp is returned when --help was asked for and printed.
var ErrHelp = errors.New("help was printed")

// UsageError is a mistake on the command line, or a value that a setting cannot have.
type UsageError struct {
	// Command is what was called, as far as it was understood, such as "apiary client listen"; its --help
	// says what would have been right.
	Command string
	cause   error
}

// Error says what is wrong.
func (e *UsageError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.cause }

// fileFlag is the name of the flag that names the file.
const fileFlag = "config"

// Options of Parse. The zero value reads the process's environment and the real file system.
type Options struct {
	// Description is the first line of the help text.
	Description string
	// Also are pointers to further structs whose settings stand beside those of cfg.
	Also []any
	// Environ is the environment as os.Environ gives it; nil takes that.
	Environ []string
	// ReadFile reads the configuration file and mounted secrets; nil takes os.ReadFile.
	ReadFile func(name string) ([]byte, error)
	// Stdout receives the help text; nil discards it.
	Stdout io.Writer
}

// Loaded is the result of Parse.
type Loaded struct {
	kong     *kong.Kong
	ctx      *kong.Context
	resolver *resolver
	structs  []any
}

// file is the setting that Parse adds to every program.
type file struct {
	Config string `help:"YAML or JSON file with settings." placeholder:"PATH"`
}

// Parse fills cfg, a pointer to a struct, and opts.Also from args (without the program's name), the
// environment and the file. Values that the structs hold already are defaults that go before the
// `default` tags. The error lists everything that Validate methods complain of; what the arguments or a value
// make wrong is a *UsageError.
//
// A cfg with a method Same() [][]string says which settings of its commands are one and the same: of each list of
// names, those that nobody set have the value of one that somebody did.
func Parse(name string, cfg any, args []string, opts Options) (*Loaded, error) {
	l, err := load(name, cfg, args, opts)
	if err != nil {
		return nil, err
	}
	if l.unchecked() {
		return l, nil
	}
	if err := l.Check(); err != nil {
		return nil, err
	}
	return l, nil
}

// Unchecked is a command that runs although settings cannot work, such as one that prints them to find out why.
type Unchecked interface{ Unchecked() }

// unchecked reports whether the selected command is Unchecked.
func (l *Loaded) unchecked() bool {
	for _, p := range l.ctx.Path {
		if p.Command != nil {
			if _, ok := p.Command.Target.Addr().Interface().(Unchecked); ok {
				return true
			}
		}
	}
	return false
}

// MustDefault returns preset with every field that is zero set to its `default` tag: the
// configuration of a program that was started without any. It panics when the struct's tags are
// malformed, which is a mistake in the program.
func MustDefault[C any](preset C) C {
	if _, err := load("", &preset, nil, Options{Environ: []string{}}); err != nil {
		panic(fmt.Sprintf("config: defaults of %T: %v", preset, err))
	}
	return preset
}

func load(name string, cfg any, args []string, opts Options) (*Loaded, error) {
	if opts.Environ == nil {
		opts.Environ = os.Environ()
	}
	if opts.ReadFile == nil {
		opts.ReadFile = os.ReadFile
	}
	if opts.Stdout == nil {
		opts.Stdout = io.Discard
	}
	l := &Loaded{structs: append([]any{cfg}, opts.Also...)}
	helped := false
	kopts := []kong.Option{
		kong.Name(name), kong.Description(opts.Description),
		kong.Writers(opts.Stdout, opts.Stdout),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.ValueFormatter(func(v *kong.Value) string { return l.help(v) }),
	}
	for _, s := range l.structs {
		kopts = append(kopts, kong.Embed(s))
	}
	k, err := kong.New(&file{}, kopts...)
	if err != nil {
		return nil, fmt.Errorf("read the structure of %T: %w", cfg, err)
	}
	l.kong = k
	if l.resolver, err = newResolver(k.Model, opts); err != nil {
		return nil, err
	}
	if c, ok := cfg.(interface{ Same() [][]string }); ok {
		l.resolver.same = c.Same()
	}
	presetDefaults(k.Model)
	if err := l.resolver.readFile(args); err != nil {
		return nil, err
	}
	kong.Resolvers(l.resolver).Apply(k) //nolint:errcheck // cannot fail
	l.ctx, err = k.Parse(args)
	if helped {
		return nil, ErrHelp
	}
	if err != nil {
		if err := l.explain(name, err); err != nil {
			return nil, err
		}
	}
	for _, p := range l.ctx.Path {
		if p.Flag != nil && !p.Resolved {
			l.resolver.sources[p.Flag] = Source{Kind: FromFlag, Name: "--" + p.Flag.Name}
		}
	}
	return l, nil
}

// explain adds to kong's error which command it is about, and which variable or file has the value that it
// complains of. The structs of a command kong validates by itself, up to the first complaint and without saying
// whose it is; that is replaced by all of them, or by none if the command is Unchecked.
func (l *Loaded) explain(name string, err error) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil {
		return err
	}
	l.ctx = parse.Context
	if l.complains(err) {
		if l.unchecked() {
			return nil
		}
		return l.Check()
	}
	command := []string{name}
	for _, p := range parse.Context.Path {
		if p.Command != nil {
			command = append(command, p.Command.Name)
		}
	}
	return &UsageError{Command: strings.Join(command, " "), cause: l.locate(err)}
}

// complains reports whether err is what a Validate method says.
func (l *Loaded) complains(err error) (found bool) {
	l.walk(func(_ string, v any) {
		if c, ok := v.(interface{ Validate() error }); ok {
			own := c.Validate()
			found = found || (own != nil && strings.HasSuffix(err.Error(), own.Error()))
		}
	})
	return found
}

// locate names the variable or file that a value comes from. kong's complaint begins with the flag's name.
func (l *Loaded) locate(err error) error {
	flag, complaint, found := strings.Cut(err.Error(), ": ")
	if !found {
		return err
	}
	for f, source := range l.resolver.sources {
		if "--"+f.Name == flag {
			return &located{text: flag + " (from " + source.Name + "): " + complaint, cause: err}
		}
	}
	return err
}

// located is an error with another text.
type located struct {
	text  string
	cause error
}

func (e *located) Error() string { return e.text }
func (e *located) Unwrap() error { return e.cause }

// Command returns the selected command, like "config print", and the empty string when the program
// has none.
func (l *Loaded) Command() string {
	var words []string
	for _, p := range l.ctx.Path {
		if p.Command != nil {
			words = append(words, p.Command.Name)
		}
	}
	return strings.Join(words, " ")
}

// Warnings returns what the structs find legal but suspicious.
func (l *Loaded) Warnings() []string {
	var all []string
	l.walk(func(path string, v any) {
		if w, ok := v.(interface{ Warnings() []string }); ok {
			for _, s := range w.Warnings() {
				all = append(all, path+s)
			}
		}
	})
	return all
}

// Check joins what is wrong with addresses and what every Validate method says; Parse has done so, except for an
// Unchecked command. A struct without such a method has that of a struct it
// embeds, whose complaint is then heard twice.
func (l *Loaded) Check() error {
	errs := []error{l.checkHostPorts()}
	heard := map[string]bool{}
	l.walk(func(path string, v any) {
		if c, ok := v.(interface{ Validate() error }); ok {
			if err := c.Validate(); err != nil && !heard[path+err.Error()] {
				heard[path+err.Error()] = true
				errs = append(errs, fmt.Errorf("%s%w", path, err))
			}
		}
	})
	return errors.Join(errs...)
}

// walk calls fn with a pointer to every configuration struct, outer ones first, and the prefix of its
// settings. Of structs that are commands it visits the selected ones only.
func (l *Loaded) walk(fn func(path string, v any)) {
	selected := map[any]bool{}
	for _, p := range l.ctx.Path {
		if p.Command != nil {
			selected[p.Command.Target.Addr().Interface()] = true
		}
	}
	var visit func(prefix string, v reflect.Value)
	visit = func(prefix string, v reflect.Value) {
		fn(label(prefix), v.Addr().Interface())
		for i := range v.NumField() {
			field := v.Type().Field(i)
			f := v.Field(i)
			if f.Kind() != reflect.Struct || !field.IsExported() {
				continue
			}
			_, embed := field.Tag.Lookup("embed")
			_, command := field.Tag.Lookup("cmd")
			if embed || field.Anonymous || (command && selected[f.Addr().Interface()]) {
				visit(prefix+field.Tag.Get("prefix"), f)
			}
		}
	}
	for _, s := range l.structs {
		visit("", reflect.ValueOf(s).Elem())
	}
}

// label makes "postgres: " of "postgres.".
func label(prefix string) string {
	if prefix == "" {
		return ""
	}
	return strings.TrimSuffix(prefix, ".") + ": "
}

// presetDefaults makes a value that stands in a struct before parsing the default of its flag.
func presetDefaults(model *kong.Application) {
	eachFlag(model.Node, func(f *kong.Flag) {
		if f.Target.IsValid() && !f.Target.IsZero() {
			f.Default, f.HasDefault = format(f.Target, true), true
		}
	})
}

// eachFlag visits the flags of a node and of its commands, except --help.
func eachFlag(n *kong.Node, fn func(*kong.Flag)) {
	for _, f := range n.Flags {
		if f.Name != "help" {
			fn(f)
		}
	}
	for _, child := range n.Children {
		eachFlag(child, fn)
	}
}
