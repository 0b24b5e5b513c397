package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
)

func TestDecode(t *testing.T) {
	e := nostrtest.Event(t, "alice", nostrtest.Content("é\n\x01"), nostrtest.Tag("t", "x"))
	raw := string(nostrtest.Raw(e))

	f := client.Decode([]byte(`["EVENT","s",` + raw + `]`))
	require.NoError(t, f.Malformed)
	require.Equal(t, "s", f.Sub)
	require.Equal(t, e, f.Event)

	f = client.Decode([]byte(`["OK","` + e.ID.String() + `",true,""]`))
	require.NoError(t, f.Malformed)
	require.True(t, f.Accepted)
	require.Equal(t, e.ID.String(), f.ID)

	f = client.Decode([]byte(`["CLOSED","s","error: no"]`))
	require.NoError(t, f.Malformed)
	require.Equal(t, "error: no", f.Message)

	f = client.Decode([]byte(`["COUNT","c",{"count":3,"approximate":true,"hll":"00"}]`))
	require.NoError(t, f.Malformed)
	require.Equal(t, client.Counted{Count: new(int64(3)), Approximate: true, HLL: "00"}, f.Count)

	f = client.Decode([]byte(`["NEG-ERR","n","blocked: too big",100]`))
	require.NoError(t, f.Malformed)
	require.Equal(t, "blocked: too big", f.Message)
}

func TestDecodeMalformed(t *testing.T) {
	for _, raw := range []string{
		``, `{}`, `[]`, `[1]`, `["WHAT"]`, `["EOSE"]`, `["EOSE","s","more"]`, `["EOSE",1]`, `["OK","id",true]`, `["OK","id",1,""]`,
		`["NOTICE"]`, `["CLOSED","s"]`, `["CLOSED","s",null]`, `["EVENT","s"]`, `["EVENT","s",{}]`, `["EVENT","s",{"id":"00"}]`,
		`["COUNT","c",{}]`, `["COUNT","c",{"count":1.5}]`, `["COUNT","c",3]`,
	} {
		f := client.Decode([]byte(raw))
		require.Error(t, f.Malformed, raw)
	}
	f := client.Decode([]byte(`["EVENT","s",{}]`))
	require.Equal(t, "s", f.Sub, "what can be read is there nevertheless")
}
