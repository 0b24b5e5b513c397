// Package auth judges the events with which clients prove who they are: NIP-42 on a connection, NIP-98
// on an HTTP request; and the attestations by which they show whose agents they are (NIP-OA). It owns these
// checks and nothing around them: it issues no challenges, keeps no record of what was used before and knows
// no members. A caller that must not accept a proof twice remembers the returned event's id for the length of
// the window.
//
// Everything is a pure function of its arguments, the time included; there is no state and no
// goroutine. The texts of all errors may be shown to the client: they quote nothing and say nothing
// about what the relay holds.
package auth
