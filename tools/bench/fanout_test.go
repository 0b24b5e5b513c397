package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Everybody has everything once, flooded and paced. `make bench-fanout` is the same with more of it, and with others.
func TestFanout(t *testing.T) {
	for _, shape := range []shapeOfCrowd{{"one topic", 20, 1, 1}, {"some topics each", 20, 8, 2}} {
		t.Run(shape.name, func(t *testing.T) {
			var out strings.Builder
			f := fanout{
				binary: allInOne(t), only: "apiary", length: time.Second, most: 400, perSec: 400, outside: 200,
				crowds: []shapeOfCrowd{shape},
			}
			require.NoError(t, runFanout(t.Context(), f, &out), out.String())
			line := out.String()[strings.Index(out.String(), "RESULT ")+len("RESULT "):]
			var res map[string]figures
			require.NoError(t, json.Unmarshal([]byte(line), &res))
			require.Positive(t, res["apiary"].PerSecond)
			require.Positive(t, res["apiary"].PacedP99)
			require.Zero(t, res["apiary"].Lost+res["apiary"].Twice)
		})
	}
}
