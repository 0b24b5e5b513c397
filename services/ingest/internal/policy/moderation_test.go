package policy_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func TestModeratorsCommands(t *testing.T) {
	bob, report := nostrtest.PubKey("bob"), nostr.ID{31: 1}
	p, about := nostrtest.Tag("p", bob.String()), nostrtest.Tag("report", report.String())
	tag := nostrtest.Tag
	in := func(d time.Duration) (int64, nostrtest.Option) {
		at := nostrtest.Epoch + int64(d/time.Second)
		return at, tag("expiration", strconv.FormatInt(at, 10))
	}
	hour, inAnHour := in(time.Hour)
	year, inAYear := in(365 * 24 * time.Hour)
	_, later := in(365*24*time.Hour + time.Second)
	for _, c := range []struct {
		name string
		kind nostr.Kind
		opts []nostrtest.Option
		asks any
		msg  string
	}{
		{"a ban", 9040, []nostrtest.Option{p}, &policy.Ban{Target: bob}, ""},
		{"a ban that ends", 9040, []nostrtest.Option{p, inAnHour, tag("reason", "rude")}, &policy.Ban{Target: bob, Reason: "rude", Until: hour}, ""},
		{"a ban of nobody", 9040, nil, nil, "missing or invalid p tag"},
		{"a ban for good reasons", 9040, []nostrtest.Option{p, tag("reason", strings.Repeat("x", 1025))}, nil, "reason must be text of at most 1024 bytes"},
		{"a ban for no text", 9040, []nostrtest.Option{p, tag("reason", "\x00")}, nil, "reason must be text of at most 1024 bytes"},
		{"an invite to a channel for aeons", 9009, []nostrtest.Option{nostrtest.Channel("hall"), tag("code", "12345678"), tag("expiration", "9223372036854775807")}, nil, "expiration is too far away"},
		{"a ban for aeons", 9040, []nostrtest.Option{p, tag("expiration", "253402300800")}, nil, "expiration is too far away"},
		{"a ban that is over", 9040, []nostrtest.Option{p, tag("expiration", "1")}, nil, "event has expired"},
		{"an old ban", 9040, []nostrtest.Option{p, nostrtest.CreatedAt(nostrtest.Epoch - 121)}, nil, "event timestamp too far from server time"},
		{"no ban", 9041, []nostrtest.Option{p}, &policy.Unban{Target: bob}, ""},
		{"a timeout", 9042, []nostrtest.Option{p, inAYear}, &policy.Timeout{Target: bob, Until: year}, ""},
		{"a timeout without an end", 9042, []nostrtest.Option{p}, nil, "missing expiration tag"},
		{"a long timeout", 9042, []nostrtest.Option{p, later}, nil, "a timeout lasts at most 365 days"},
		{"no timeout", 9043, []nostrtest.Option{p}, &policy.Untimeout{Target: bob}, ""},
		{"a decision", 9044, []nostrtest.Option{about, tag("status", "resolved"), tag("action", "delete")}, &policy.ResolveReport{
			Report: report, Status: policy.ReportResolved, Action: policy.ReportDelete,
		}, ""},
		{"a decision that ends", 9044, []nostrtest.Option{about, inAnHour, tag("status", "resolved"), tag("action", "timeout")}, &policy.ResolveReport{
			Report: report, Status: policy.ReportResolved, Action: policy.ReportTimeout, Until: hour,
		}, ""},
		{"a decision for somebody else", 9044, []nostrtest.Option{about, tag("status", "resolved"), tag("action", "escalate")}, &policy.ResolveReport{
			Report: report, Status: policy.ReportEscalated, Action: policy.ReportEscalate,
		}, ""},
		{"a timeout without an end by decision", 9044, []nostrtest.Option{about, tag("status", "resolved"), tag("action", "timeout")}, nil, "missing expiration tag"},
		{"a decision on nothing", 9044, []nostrtest.Option{p}, nil, "missing or invalid report tag"},
		{"a decision of no kind", 9044, []nostrtest.Option{about, tag("status", "escalated")}, nil, "status must be resolved or dismissed"},
		{"a decision to do nothing", 9044, []nostrtest.Option{about, tag("status", "resolved")}, nil, "action must be delete, kick, ban, timeout, dismiss or escalate"},
		{"a decision to do otherwise", 9044, []nostrtest.Option{about, tag("status", "dismissed"), tag("action", "ban")}, nil, "a dismissed report has the action dismiss"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := nostrtest.Event(t, "alice", append([]nostrtest.Option{nostrtest.Kind(c.kind)}, c.opts...)...)
			got, v := policy.Check(policy.Submission{
				Community: 1, Raw: nostrtest.Raw(ev), Principal: []nostr.PubKey{ev.PubKey},
			}, ev, policy.Limits{}, time.Unix(nostrtest.Epoch, 0))
			require.Equal(t, c.msg, v.Message)
			if c.asks != nil {
				require.Equal(t, c.asks, got.Command.Asks)
				require.True(t, got.Command.Governs)
				require.True(t, got.Whole())
			}
		})
	}
}
