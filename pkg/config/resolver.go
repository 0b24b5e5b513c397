package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

const (
	envPrefix = "APIARY_"
	// fileSuffix on a secret's variable names a file that holds its value.
	fileSuffix = "_FILE"
	// maxFile bounds the configuration file and mounted secrets.
	maxFile = 1 << 20
)

// Where a value came from.
const (
	FromDefault = "default"
	FromFile    = "file"
	FromEnv     = "env"
	FromFlag    = "flag"
)

// Source says where a value came from: one of the From constants and the name of the flag, variable or
// file.
type Source struct{ Kind, Name string }

// resolver answers kong for flags that are not on the command line: from the environment, else from
// the file. kong's own handling of both is not used, because there the file would win and unknown
// keys would pass.
type resolver struct {
	environ  map[string]string
	readRaw  func(string) ([]byte, error)
	envs     map[*kong.Flag][]string // variables of a flag, the derived one first
	flags    map[string]*kong.Flag   // by name; for a name used by several commands, one of them
	file     map[string]string       // by flag name
	fileName string
	same     [][]string // names of flags that are one setting
	sources  map[*kong.Flag]Source
}

func newResolver(model *kong.Application, opts Options) (*resolver, error) {
	r := &resolver{
		environ: map[string]string{}, readRaw: opts.ReadFile,
		envs: map[*kong.Flag][]string{}, flags: map[string]*kong.Flag{}, file: map[string]string{}, sources: map[*kong.Flag]Source{},
	}
	for _, kv := range opts.Environ {
		if name, value, ok := strings.Cut(kv, "="); ok && value != "" {
			r.environ[name] = value
		}
	}
	var errs []error
	eachFlag(model.Node, func(f *kong.Flag) {
		argument := len(f.Envs) == 1 && f.Envs[0] == "-"
		envs := append([]string{EnvName(f.Name)}, without(f.Envs, EnvName(f.Name))...)
		f.Envs, f.Tag.Envs = nil, nil // or kong would read the process's environment itself
		if argument {
			return // neither the environment nor a file sets it
		}
		r.envs[f] = envs
		if other := r.flags[f.Name]; other != nil && other.Target.Type() != f.Target.Type() {
			errs = append(errs, fmt.Errorf("setting %s has two types", f.Name))
		}
		r.flags[f.Name] = f
	})
	return r, errors.Join(errs...)
}

// EnvName returns the variable that is derived from a flag's name: postgres.max-conns gives
// APIARY_POSTGRES_MAX_CONNS.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(flag))
}

func without(list []string, s string) []string {
	var out []string
	for _, v := range list {
		if v != s {
			out = append(out, v)
		}
	}
	return out
}

// Validate implements kong.Resolver.
func (*resolver) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (r *resolver) Resolve(ctx *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	value, source, err := r.lookup(f)
	if err == nil && value == nil {
		value, source, err = r.twin(ctx, f)
	}
	if err != nil || value == nil {
		return nil, err // nothing: kong's way to be told that the resolver does not know
	}
	r.sources[f] = source
	return value, nil
}

// lookup returns what the environment or the file says of a flag; nil if neither says anything.
func (r *resolver) lookup(f *kong.Flag) (value any, from Source, err error) {
	for _, name := range r.envs[f] {
		value, set := r.environ[name]
		path, mounted := r.environ[name+fileSuffix]
		switch {
		case !isSecret(f) || !mounted:
		case set:
			return nil, from, fmt.Errorf("both %s and %s are set", name, name+fileSuffix)
		default:
			b, err := r.read(path)
			if err != nil {
				return nil, from, fmt.Errorf("%s: %w", name+fileSuffix, err)
			}
			return strings.TrimRight(string(b), "\r\n"), Source{FromEnv, name + fileSuffix}, nil
		}
		if set {
			return value, Source{FromEnv, name}, nil
		}
	}
	if value, ok := r.file[f.Name]; ok {
		return value, Source{FromFile, r.fileName}, nil
	}
	return nil, from, nil
}

// twin returns the value that somebody gave to another flag of the same command which is one setting with f; nil if
// nobody did.
func (r *resolver) twin(ctx *kong.Context, f *kong.Flag) (value any, from Source, err error) {
	at := slices.IndexFunc(r.same, func(names []string) bool { return slices.Contains(names, f.Name) })
	if at < 0 {
		return nil, from, nil
	}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved && slices.Contains(r.same[at], p.Flag.Name) {
			return format(reflect.ValueOf(ctx.FlagValue(p.Flag)), true), Source{FromFlag, "--" + p.Flag.Name}, nil
		}
	}
	for _, other := range ctx.Flags() {
		if other != f && slices.Contains(r.same[at], other.Name) {
			if value, from, err = r.lookup(other); value != nil || err != nil {
				return value, from, err
			}
		}
	}
	return nil, from, nil
}

func isSecret(f *kong.Flag) bool {
	return f.Target.Type() == reflect.TypeFor[Secret]() || f.Tag.Has("secret")
}

func (r *resolver) read(path string) ([]byte, error) {
	b, err := r.readRaw(path)
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path, maxFile)
	}
	return b, nil
}

// readFile loads the file that --config or APIARY_CONFIG names. The flag is looked for before kong
// parses, because kong asks for other flags' values in between.
func (r *resolver) readFile(args []string) error {
	r.fileName = r.environ[EnvName(fileFlag)]
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if value, ok := strings.CutPrefix(arg, "--"+fileFlag+"="); ok {
			r.fileName = value
		} else if arg == "--"+fileFlag && i+1 < len(args) {
			r.fileName = args[i+1]
		}
	}
	if r.fileName == "" {
		return nil
	}
	b, err := r.read(r.fileName)
	if err != nil {
		return fmt.Errorf("read configuration file: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return fmt.Errorf("read configuration file %s: %w", r.fileName, err)
	}
	if len(doc.Content) == 0 {
		return nil // an empty file
	}
	if err := errors.Join(r.flatten("", doc.Content[0])...); err != nil {
		return fmt.Errorf("read configuration file %s: %w", r.fileName, err)
	}
	return nil
}

// flatten notes the values under a mapping and returns all complaints.
func (r *resolver) flatten(prefix string, n *yaml.Node) (errs []error) {
	if n.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("line %d: want a mapping", n.Line)}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		name := prefix + key.Value
		flag := r.flags[name]
		_, seen := r.file[name]
		switch {
		case flag == nil && value.Kind == yaml.MappingNode && r.isPrefix(name+"."):
			errs = append(errs, r.flatten(name+".", value)...)
			continue
		case flag == nil || name == fileFlag:
			errs = append(errs, fmt.Errorf("line %d: unknown key %s", key.Line, name))
			continue
		case seen:
			errs = append(errs, fmt.Errorf("line %d: key %s is there twice", key.Line, name))
			continue
		case value.Tag == "!!null":
			continue
		}
		text, err := scalar(flag, value)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %s: %w", value.Line, name, err))
			continue
		}
		r.file[name] = text
	}
	return errs
}

func (r *resolver) isPrefix(prefix string) bool {
	for name := range r.flags {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// scalar renders a YAML value as it would stand on the command line.
func scalar(f *kong.Flag, n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode && f.IsSlice():
		items := make([]string, 0, len(n.Content))
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return "", errors.New("want a list of plain values")
			}
			items = append(items, c.Value)
		}
		return kong.JoinEscaped(items, f.Tag.Sep), nil
	default:
		return "", errors.New("want a plain value")
	}
}
