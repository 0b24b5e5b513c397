// Package config turns flags, environment, a file and defaults into configuration structs.
//
// It owns the names of settings and their precedence: flag, then environment, then file, then the
// value that the program set before parsing, then the `default` tag. A field MaxConns in a struct
// embedded with prefix "postgres." is the flag --postgres.max-conns, the variable
// APIARY_POSTGRES_MAX_CONNS and the key max-conns under postgres in a YAML (or JSON) file. An `env`
// tag adds further variables after the derived one; `env:"-"` makes a flag an argument of its command,
// which neither the environment nor a file sets. An empty variable counts as not set. For a
// setting that is secret (type Secret, or a `secret:""` tag) <NAME>_FILE may name a file that holds
// the value.
//
// A `hostport:""` tag makes a text an address, HOST:PORT; `hostport:"empty"` allows none as well,
// `hostport:"unix"` also unix:///PATH, and both may stand together.
//
// A key in the file that no setting claims is an error, not a no-op. Structs say what is impossible
// in `Validate() error` and what is suspicious in `Warnings() []string`; both are called on nested
// structs too. Positive, NotNegative and AtMost are for the former.
//
// This is the only package that reads the environment. It has no state and starts nothing. Settings
// of a community are data, never configuration.
package config
