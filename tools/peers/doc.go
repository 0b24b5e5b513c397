// Package peers holds the relays that the fan-out benchmark compares Apiary with, each as small as its library's own
// first example: a memory store of nothing, no policy, no logging per event. Centrifugo is not here: it is a server, and
// is installed as it is.
//
// The module is not part of the workspace: what these relays need is nothing that Apiary ships.
package peers
