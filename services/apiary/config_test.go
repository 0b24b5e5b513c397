package apiary_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/apiary"
)

// Clients believe what self has signed, so it must be the key that signs.
func TestSelfIsTheRelaysKey(t *testing.T) {
	secret, self := config.NewSecret(nostrtest.Key("relay").Hex()+"\n"), nostrtest.PubKey("relay").String()
	for _, c := range []struct {
		name   string
		secret config.Secret
		self   string
		ok     bool
	}{
		{"neither", config.Secret{}, "", true},
		{"both", secret, self, true},
		{"another's", secret, nostrtest.PubKey("other").String(), false},
		{"only the secret part", secret, "", true},
		{"only the public part", config.Secret{}, self, false},
	} {
		cfg := apiary.DefaultConfig()
		cfg.Ingest.RelayKey, cfg.Gateway.Self = c.secret, c.self
		err := cfg.Validate()
		require.Equal(t, c.ok, err == nil, c.name)
		if c.name == "another's" {
			require.ErrorContains(t, err, self, "what it has to be")
		}
	}
}
