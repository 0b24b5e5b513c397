// Package nip19 reads and writes the names by which people know keys and events (NIP-19): npub, note,
// nprofile, nevent, naddr. They are for showing and typing only; frames and filters carry hex. The package
// must never take a secret key: nsec is refused like any other name it does not know.
//
// Everything is a pure function; nothing panics on any input. The bech32 under it (BIP-173) is forty lines of
// our own, because the usual module brings a Bitcoin node's dependencies with it.
package nip19
