package client

import (
	"fmt"

	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// LoadKey reads the secret key in the file at path: 64 lower-case hexadecimal digits. When there is no
// such file it makes a key and the file, which only the user may read, and created is true.
func LoadKey(path string) (key *nostr.SecretKey, created bool, err error) {
	text, created, err := datadir.LoadOrCreate(path, func() ([]byte, error) {
		fresh, err := nostr.GenerateSecretKey()
		if err != nil {
			return nil, err
		}
		return []byte(fresh.Hex()), nil
	})
	if err != nil {
		return nil, false, err
	}
	if key, err = nostr.ParseSecretKey(string(text)); err != nil {
		return nil, false, fmt.Errorf("read key file %s: %w", path, err)
	}
	return key, created, nil
}
