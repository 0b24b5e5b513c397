// Command kubeschema writes the JSON schemas that kubeconform checks the chart's objects by, from the OpenAPI document of a
// Kubernetes release, which is a file of the module k8s.io/kubernetes:
//
//	kubeschema -swagger api/openapi-spec/swagger.json -o tools/kubeschema/schemas Deployment Service …
//
// `make kube-schemas` gets the document and names the kinds. A schema refuses fields that the API does not know. Descriptions
// are left out, and so is what no named kind needs.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The exit codes, as of all our programs.
const (
	exitFailure = 1
	exitUsage   = 2
)

// shared is the file with the definitions that the kinds' files refer to.
const shared = "_definitions.json"

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run is the program; it returns the exit code.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("kubeschema", flag.ContinueOnError)
	flags.SetOutput(stderr)
	swagger := flags.String("swagger", "", "the OpenAPI document")
	out := flags.String("o", "", "directory to write to")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	if err := write(*swagger, *out, flags.Args()); err != nil {
		fmt.Fprintln(stderr, "kubeschema:", err)
		return exitFailure
	}
	return 0
}

// definition is a schema of the document.
type definition = map[string]any

func write(swagger, out string, kinds []string) error {
	text, err := os.ReadFile(filepath.Clean(swagger))
	if err != nil {
		return err
	}
	files, err := schemas(text, kinds)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // part of the repository
		return err
	}
	for name, schema := range files {
		text, err := json.MarshalIndent(schema, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), append(text, '\n'), 0o644); err != nil { //nolint:gosec // likewise
			return err
		}
	}
	return nil
}

// schemas returns a file for each version of each kind, which refers to the shared one, under kubeconform's names.
func schemas(swagger []byte, kinds []string) (map[string]definition, error) {
	var document struct {
		Definitions map[string]definition `json:"definitions"`
	}
	if err := json.Unmarshal(swagger, &document); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	files, kept := map[string]definition{}, map[string]any{}
	missing := slices.Clone(kinds)
	for name, d := range document.Definitions {
		for _, g := range list(d["x-kubernetes-group-version-kind"]) {
			gvk, _ := g.(map[string]any)
			kind, _ := gvk["kind"].(string)
			if !slices.Contains(kinds, kind) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(m string) bool { return m == kind })
			group, _ := gvk["group"].(string)
			version, _ := gvk["version"].(string)
			file := []string{kind}
			if group, _, _ = strings.Cut(group, "."); group != "" {
				file = append(file, group)
			}
			files[strings.ToLower(strings.Join(append(file, version), "-"))+".json"] = definition{"$ref": shared + "#/definitions/" + name}
			keep(kept, document.Definitions, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the document does not know %s", strings.Join(missing, ", "))
	}
	files[shared] = definition{"definitions": kept}
	return files, nil
}

// keep takes a definition and what it refers to over, made strict.
func keep(kept map[string]any, all map[string]definition, name string) {
	if kept[name] != nil {
		return
	}
	d := all[name]
	kept[name] = d
	delete(d, "x-kubernetes-group-version-kind")
	switch {
	case d["format"] == "int-or-string":
		delete(d, "type")
		d["oneOf"] = []any{definition{"type": "string"}, definition{"type": "integer"}}
	case strings.HasSuffix(name, ".resource.Quantity"):
		delete(d, "type")
		d["oneOf"] = []any{definition{"type": "string"}, definition{"type": "number"}}
	}
	properties, _ := d["properties"].(map[string]any)
	if properties != nil && d["additionalProperties"] == nil {
		d["additionalProperties"] = false
	}
	for _, p := range properties {
		tidy(p)
	}
	tidy(d)
	for _, reference := range references(d) {
		keep(kept, all, reference)
	}
}

// tidy removes what does not decide anything.
func tidy(v any) {
	if d, ok := v.(map[string]any); ok {
		delete(d, "description")
		for key := range d {
			if strings.HasPrefix(key, "x-kubernetes-") {
				delete(d, key)
			}
		}
	}
}

// references returns the names of the definitions that v refers to.
func references(v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		if reference, ok := v["$ref"].(string); ok {
			names = append(names, strings.TrimPrefix(reference, "#/definitions/"))
		}
		for _, inner := range v {
			names = append(names, references(inner)...)
		}
	case []any:
		for _, inner := range v {
			names = append(names, references(inner)...)
		}
	}
	return names
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}
