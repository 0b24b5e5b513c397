package serve

import (
	"fmt"

	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// identity is one of the keys in the data directory.
type identity struct {
	path    string
	key     *nostr.SecretKey
	created bool
}

// loadIdentity reads a key of the data directory, and makes it the first time.
func loadIdentity(dir *datadir.Dir, name string) (identity, error) {
	path := dir.Path(name + ".key")
	text, created, err := datadir.LoadOrCreate(path, func() ([]byte, error) {
		key, err := nostr.GenerateSecretKey()
		if err != nil {
			return nil, err
		}
		return []byte(key.Hex()), nil
	})
	if err != nil {
		return identity{}, err
	}
	key, err := nostr.ParseSecretKey(string(text))
	if err != nil {
		return identity{}, fmt.Errorf("read key file %s: %w", path, err)
	}
	return identity{path: path, key: key, created: created}, nil
}
