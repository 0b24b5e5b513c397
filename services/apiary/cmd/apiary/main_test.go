package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The test binary is also the program: scripts and tests run it under the name apiary.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"apiary": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("DATABASE_URL", "")
			return nil
		},
	})
}
