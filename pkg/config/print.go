package config

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// Setting is one setting and its value. Secrets are redacted.
type Setting struct {
	// Name is the flag's name without dashes and the key in a file.
	Name string
	// Envs are its variables, the one that wins first.
	Envs []string
	// Help is one sentence or more.
	Help string
	// Default is the value without any configuration.
	Default string
	// Value is the value in effect.
	Value string
	// Source says where Value came from.
	Source Source
	// Hidden settings are for tests and emergencies and are not in the reference.
	Hidden bool
	// Changed: somebody set the value, and to something else than its default.
	Changed bool
	// reference is the default as Doc shows it.
	reference string
}

// Settings returns the settings of the program and of the selected command, sorted by name.
func (l *Loaded) Settings() []Setting {
	var list []Setting
	for _, f := range l.flags() {
		if _, ok := l.resolver.envs[f]; ok { // else it is an action, not a setting
			list = append(list, l.setting(f))
		}
	}
	slices.SortFunc(list, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// flags returns those of the program and of the selected command.
func (l *Loaded) flags() []*kong.Flag {
	var all []*kong.Flag
	for _, p := range l.ctx.Path {
		if node := p.Node(); node != nil && (p.Command != nil || p.App != nil) {
			all = append(all, node.Flags...)
		}
	}
	return all
}

func (l *Loaded) setting(f *kong.Flag) Setting {
	s := Setting{
		Name: f.Name, Envs: l.resolver.envs[f], Help: f.Help, Default: defaultOf(f), Hidden: f.Hidden,
		Value: format(f.Target, true), Source: l.resolver.sources[f],
	}
	if s.Source.Kind == "" {
		s.Source.Kind = FromDefault
	}
	s.Changed = s.Source.Kind != FromDefault && s.Value != s.Default
	s.reference = s.Default
	if isSecret(f) {
		s.Value, s.Default = redact(s.Value), redact(s.Default)
		if f.Default != f.Tag.Default { // else everybody can read it in the source
			s.reference = s.Default
		}
	}
	return s
}

// defaultOf returns a flag's default as format writes it, so that the same value looks the same wherever
// it comes from.
func defaultOf(f *kong.Flag) string {
	if !f.HasDefault {
		if f.Target.Kind() == reflect.Pointer {
			return ""
		}
		return format(reflect.Zero(f.Target.Type()), true)
	}
	if f.Target.Type() == reflect.TypeFor[time.Duration]() {
		if d, err := time.ParseDuration(f.Default); err == nil {
			return shortDuration(d)
		}
	}
	return f.Default
}

func redact(s string) string {
	if s == "" {
		return ""
	}
	return redacted
}

// Print writes the settings in effect as a file that Parse reads, each with its source; with diff only
// those that do not have their default.
func (l *Loaded) Print(w io.Writer, diff bool) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range l.Settings() {
		if s.Name == fileFlag || (diff && !s.Changed) {
			continue
		}
		put(root, strings.Split(s.Name, "."), s)
	}
	if len(root.Content) == 0 {
		_, err := io.WriteString(w, "# all settings have their defaults\n")
		return err
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return enc.Close()
}

// put adds a value under the path of keys.
func put(n *yaml.Node, path []string, s Setting) {
	if len(path) > 1 {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == path[0] && n.Content[i+1].Kind == yaml.MappingNode {
				put(n.Content[i+1], path[1:], s)
				return
			}
		}
		child := &yaml.Node{Kind: yaml.MappingNode}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}, child)
		put(child, path[1:], s)
		return
	}
	value := &yaml.Node{Kind: yaml.ScalarNode, Value: s.Value, LineComment: strings.TrimSpace(s.Source.Kind + " " + s.Source.Name)}
	if s.Value == "" {
		value.Style = yaml.DoubleQuotedStyle
	}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}, value)
}

// Doc writes the reference of the settings as a Markdown table. It is the same whatever is configured. The
// default of a secret is shown only if it stands in the program's source.
func (l *Loaded) Doc(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| flag | environment | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, s := range l.Settings() {
		if s.Hidden {
			continue
		}
		envs := make([]string, len(s.Envs))
		for i, e := range s.Envs {
			envs[i] = "`" + e + "`"
		}
		def := ""
		if s.reference != "" {
			def = "`" + s.reference + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", s.Name, strings.Join(envs, ", "), cell(def), cell(s.Help))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// help is the text of a flag in --help: its meaning and its variables.
func (l *Loaded) help(v *kong.Value) string {
	if v.Flag == nil || l.resolver == nil || len(l.resolver.envs[v.Flag]) == 0 {
		return v.Help
	}
	return v.Help + " [$" + strings.Join(l.resolver.envs[v.Flag], ", $") + "]"
}

// format renders a value as it would stand on the command line. Secrets are shown only with reveal.
func format(v reflect.Value, reveal bool) string {
	switch x := v.Interface().(type) {
	case Secret:
		if reveal {
			return x.Reveal()
		}
		return x.String()
	case time.Duration:
		return shortDuration(x)
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(b)
	case fmt.Stringer:
		return x.String()
	}
	if v.Kind() == reflect.Slice {
		items := make([]string, v.Len())
		for i := range items {
			items[i] = format(v.Index(i), reveal)
		}
		return kong.JoinEscaped(items, ',')
	}
	return fmt.Sprint(v.Interface())
}

// shortDuration is d without the zeros at its end: 15m, not 15m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
