// Package channelmodel says what the commands of channels (NIP-29) do, in the simplest way: maps, no database, no locks,
// one command after the other. Property tests of the real thing draw commands from it and compare. It is written from
// the documentation, and imports nothing of the services, so that it does not agree with them by construction.
package channelmodel
