// Package postgres owns how the services talk to Postgres: pools with a role and timeouts, transactions
// with retry, what a driver error means, the key of a tag value, and running the migrations.
//
// It knows no table: SQL lives in the store package of the service that owns it. It never hides an error
// whose effect is unknown, and it never makes a service wait for Postgres at its start: a pool is usable,
// and answers with errors, while the server cannot be reached. Everything here is safe for concurrent use.
package postgres
