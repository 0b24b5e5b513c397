package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const document = `{"definitions": {
	"api.Thing": {"description": "long", "x-kubernetes-group-version-kind": [{"group": "apps.k8s.io", "kind": "Thing", "version": "v1"}],
		"required": ["spec"], "properties": {"spec": {"$ref": "#/definitions/api.Spec"}, "labels": {"additionalProperties": {"type": "string"}, "type": "object"}}},
	"api.Spec": {"properties": {"size": {"description": "long", "$ref": "#/definitions/x.resource.Quantity"}, "self": {"$ref": "#/definitions/api.Spec"}}},
	"x.resource.Quantity": {"type": "string"},
	"api.Other": {"properties": {}}
}}`

func TestSchemas(t *testing.T) {
	dir := t.TempDir()
	swagger, out := filepath.Join(dir, "swagger.json"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(swagger, []byte(document), 0o600))
	var stderr bytes.Buffer
	require.Zero(t, run([]string{"-swagger", swagger, "-o", out, "Thing"}, &stderr), stderr.String())
	kind, err := os.ReadFile(filepath.Join(out, "thing-apps-v1.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"$ref": "_definitions.json#/definitions/api.Thing"}`, string(kind))
	text, err := os.ReadFile(filepath.Join(out, shared))
	require.NoError(t, err)
	var got any
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, map[string]any{"definitions": map[string]any{
		"api.Thing": map[string]any{
			"required": []any{"spec"}, "additionalProperties": false,
			"properties": map[string]any{
				"spec":   map[string]any{"$ref": "#/definitions/api.Spec"},
				"labels": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
			},
		},
		"api.Spec": map[string]any{
			"additionalProperties": false,
			"properties": map[string]any{
				"size": map[string]any{"$ref": "#/definitions/x.resource.Quantity"}, "self": map[string]any{"$ref": "#/definitions/api.Spec"},
			},
		},
		"x.resource.Quantity": map[string]any{"oneOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "number"}}},
	}}, got)

	require.Equal(t, exitFailure, run([]string{"-swagger", swagger, "-o", out, "Thing", "Thin"}, &stderr))
	require.Contains(t, stderr.String(), "does not know Thin")
	require.Equal(t, exitUsage, run([]string{"-x"}, &stderr))
}
