package conformance_test

import (
	"bytes"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/conformance"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/naive"
)

// everything is a relay that claims all NIPs of the suite but 29: it has no groups.
func everything() naive.Options {
	return naive.Options{
		NIPs: []int{1, 4, 9, 11, 13, 40, 42, 43, 45, 50, 59, 62, 70, 77, 86},
		Limitation: client.Limitation{
			MaxMessageLength: new(int64(1 << 20)), MaxSubscriptions: new(int64(50)), MaxFilters: new(int64(10)),
			MaxLimit: new(int64(200)), DefaultLimit: new(int64(200)), MaxSubIDLength: new(int64(100)),
			MaxEventTags: new(int64(2000)), MaxContentLength: new(int64(50_000)),
			AuthRequired: new(false), PaymentRequired: new(false), RestrictedWrites: new(false),
		},
	}
}

// hold runs the suite against a naive relay, and returns how the cases ended by name.
func hold(t *testing.T, opts naive.Options, cfg conformance.Config) (map[string]conformance.Outcome, string) {
	t.Helper()
	server := httptest.NewServer(naive.New(nostrtest.Key("relay"), opts))
	defer server.Close()
	defer server.CloseClientConnections()
	var out bytes.Buffer
	url := "ws" + strings.TrimPrefix(server.URL, "http")
	report, err := conformance.Run(t.Context(), []string{url}, cfg, &out)
	if report.Count(conformance.Failed) > 0 {
		require.ErrorIs(t, err, conformance.ErrFailed)
	} else {
		require.NoError(t, err)
	}
	outcomes := map[string]conformance.Outcome{}
	for i := range report {
		outcomes[report[i].Case.Name()] = report[i].Outcome
	}
	return outcomes, out.String()
}

func patient() conformance.Config {
	cfg := conformance.DefaultConfig()
	cfg.Step, cfg.Idle, cfg.Fuzz = 10*time.Second, time.Second, 50
	return cfg
}

// except returns the names of the cases that did not pass, and fails the test if one failed.
func except(t *testing.T, outcomes map[string]conformance.Outcome, out string) []string {
	t.Helper()
	var names []string
	for name, outcome := range outcomes {
		require.NotEqual(t, conformance.Failed, outcome, "%s\n%s", name, out)
		if outcome == conformance.NotClaimed {
			names = append(names, name)
		}
	}
	return names
}

func TestANaiveRelayConforms(t *testing.T) {
	t.Parallel()
	outcomes, out := hold(t, everything(), patient())
	names := slices.DeleteFunc(except(t, outcomes, out), func(name string) bool { return strings.HasPrefix(name, "NIP-29/") })
	require.ElementsMatch(t, []string{
		"NIP-01/malformed/too-large", "NIP-01/malformed/truncated", "NIP-01/malformed/control-character",
		"NIP-01/frames/req-truncated", "NIP-01/frames/req-trailing", "NIP-01/frames/req-huge", "NIP-01/frames/req-invalid-utf8",
		"NIP-01/created-at/exponent", "NIP-01/subscription/complete-closes",
		"NIP-11/limits/created-at-lower", "NIP-11/limits/created-at-upper",
		"NIP-13/refused", "NIP-13/commitment",
		"NIP-42/required-for-event", "NIP-42/required-for-req", "NIP-42/required-for-count", "NIP-42/then-served",
		"NIP-43/members-by-relay", "NIP-43/invite",
	}, names, out)
}

func TestARelayBehindALockConforms(t *testing.T) {
	t.Parallel()
	opts := everything()
	opts.Locked = true
	opts.Limitation.AuthRequired = new(true)
	opts.Limitation.CreatedAtLowerLimit, opts.Limitation.CreatedAtUpperLimit = new(int64(900)), new(int64(900))
	outcomes, out := hold(t, opts, patient())
	names := except(t, outcomes, out)
	require.Contains(t, names, "NIP-01/public/write")
	require.Contains(t, names, "NIP-01/created-at/week-old")
	for _, name := range []string{"NIP-42/then-served", "NIP-42/required-for-count", "NIP-11/limits/created-at-lower"} {
		require.Equal(t, conformance.Passed, outcomes[name], name)
	}
}

func TestARelayThatWantsWorkConforms(t *testing.T) {
	t.Parallel()
	opts := everything()
	opts.Limitation.MinPowDifficulty = new(int64(8))
	cfg := patient()
	cfg.Only = []string{"NIP-13/"}
	outcomes, out := hold(t, opts, cfg)
	require.Empty(t, except(t, outcomes, out))
	require.Len(t, outcomes, 3)
}

// Every fault of a relay is found by the case that is about it.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for fault, name := range map[naive.Fault]string{
		naive.NoCORS:              "NIP-11/document/cors",
		naive.ManagedByAll:        "NIP-86/no-authorization",
		naive.AnySignature:        "NIP-01/events/bad-signature",
		naive.NoOKForMalformed:    "NIP-01/malformed/without-sig",
		naive.NoticeForREQ:        "NIP-01/filters/kinds-text",
		naive.BareRefusals:        "NIP-01/filters/one-bad-of-two",
		naive.OldestFirst:         "NIP-01/order/newest-first",
		naive.HighestIDFirst:      "NIP-01/order/ties-by-id",
		naive.NoLimit:             "NIP-01/order/limit-zero",
		naive.LimitTakesOldest:    "NIP-01/order/limit-in-ties",
		naive.SinceExclusive:      "NIP-01/order/since-inclusive",
		naive.UntilExclusive:      "NIP-01/differential/stored",
		naive.EmptyListIsAll:      "NIP-01/filters/kinds-empty",
		naive.IDPrefixes:          "NIP-01/find/id-prefix",
		naive.AnyTagValue:         "NIP-01/find/by-first-value",
		naive.DeliverTwice:        "NIP-01/subscription/any-filter-once",
		naive.NoLive:              "NIP-01/subscription/own",
		naive.CloseIgnored:        "NIP-01/subscription/close",
		naive.ReplaceAdds:         "NIP-01/subscription/replace",
		naive.OlderReplaces:       "NIP-01/race/replaceable",
		naive.TieStays:            "NIP-01/race/addressable-tie",
		naive.StoresEphemeral:     "NIP-01/ephemeral/not-stored",
		naive.DeletesOthers:       "NIP-09/not-others-by-id",
		naive.DeletesNewer:        "NIP-09/only-older",
		naive.DeletedReturns:      "NIP-09/resubmission",
		naive.ServesExpired:       "NIP-40/not-served",
		naive.AnyChallenge:        "NIP-42/refuses-challenge-of-another-connection",
		naive.AnyRelay:            "NIP-42/refuses-wrong-relay",
		naive.AnyTime:             "NIP-42/refuses-too-old",
		naive.OneKey:              "NIP-42/several-keys",
		naive.PublishesAuth:       "NIP-42/not-published",
		naive.CountsTwice:         "NIP-45/once-over-filters",
		naive.WrongHLL:            "NIP-45/hll-event",
		naive.NoSearch:            "NIP-50/nothing",
		naive.WrapsForAll:         "NIP-59/nobody-else",
		naive.VanishIsForgotten:   "NIP-62/no-return",
		naive.VanishForAnyRelay:   "NIP-62/another-relay",
		naive.ProtectedByAll:      "NIP-70/by-another",
		naive.NoWork:              "NIP-13/refused",
		naive.ForgetsInNegentropy: "NIP-77/nothing-here",
		naive.AnyLength:           "NIP-11/limits/max-content-length",
		naive.AnyAge:              "NIP-11/limits/created-at-lower",
		naive.MembersByAll:        "NIP-43/members-forged",
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			opts := everything()
			opts.Faults = []naive.Fault{fault}
			switch fault { //nolint:exhaustive // the others show without more
			case naive.NoWork:
				opts.Limitation.MinPowDifficulty = new(int64(8))
			case naive.AnyAge:
				opts.Limitation.CreatedAtLowerLimit = new(int64(900))
			}
			cfg := patient()
			cfg.Step, cfg.Only = time.Second, []string{name}
			cfg.Seed, cfg.Fuzz = 1, 200 // what is random finds the same each time
			outcomes, out := hold(t, opts, cfg)
			require.Contains(t, outcomes, name)
			require.NotEqual(t, conformance.Passed, outcomes[name], out)
			require.Contains(t, out, "expected: ", "the case says what it expected")
		})
	}
}
