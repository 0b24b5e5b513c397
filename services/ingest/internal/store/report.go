package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements about reports (NIP-56). Whoever runs them holds the community exclusively.
const (
	// By event_ids_pkey and events_time.
	sqlReport = `
SELECT e.raw FROM ingest.event_ids i
JOIN ingest.events e ON e.community_id = i.community_id AND e.created_at = i.created_at AND e.id = i.id
WHERE i.community_id = $1 AND i.id = $2 AND e.kind = 1984`

	// By event_ids_pkey and events_time.
	sqlAuthor = `
SELECT e.pubkey FROM ingest.event_ids i
JOIN ingest.events e ON e.community_id = i.community_id AND e.created_at = i.created_at AND e.id = i.id
WHERE i.community_id = $1 AND i.id = $2`

	// Conflicts on report_decisions_pkey: the last decision stands.
	sqlDecideReport = `
INSERT INTO ingest.report_decisions (community_id, report_id, status, action, decided_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (community_id, report_id) DO UPDATE
SET status = excluded.status, action = excluded.action, decided_by = excluded.decided_by, decided_at = excluded.decided_at`
)

// accused is what a report is about.
type accused struct {
	event  *nostr.ID
	pubkey *nostr.PubKey
}

// resolveReport does what the command wants done, and has the report decided. That an event was reported by somebody
// is no proof of whose it is: its author is read from the event while that is stored.
func (x *change) resolveReport(ctx context.Context, e *entry, r *policy.ResolveReport) (policy.Verdict, error) {
	m := commanded(e, r.Reason)
	actor, err := x.role(ctx, m.Actor)
	switch {
	case err != nil:
		return policy.Verdict{}, err
	case !actor.Moderates():
		return policy.ModeratorsOnly, nil
	}
	about, found, err := x.accused(ctx, r.Report)
	switch {
	case err != nil:
		return policy.Verdict{}, err
	case !found:
		return policy.NoReport, nil
	}
	verdict, err := x.punish(ctx, m, r, about)
	if err != nil || !verdict.Accepted() {
		return verdict, err
	}
	if _, err := x.conn.Exec(ctx, sqlDecideReport, x.community, r.Report[:], r.Status, r.Action, m.Actor[:]); err != nil {
		return policy.Verdict{}, fmt.Errorf("decide report: %w", err)
	}
	if about.event != nil && r.Status != policy.ReportEscalated {
		if _, err := x.conn.Exec(ctx, sqlDecideReports, x.community, about.event[:], m.Actor[:]); err != nil {
			return policy.Verdict{}, fmt.Errorf("decide reports: %w", err)
		}
	}
	action := Action{Name: string(r.Action), Report: r.Report[:], Until: r.Until}
	if about.event != nil {
		action.Event = about.event[:]
	}
	if about.pubkey != nil {
		action.PubKey = about.pubkey[:]
	}
	return verdict, x.record(ctx, m, action)
}

// punish carries out the action. An acceptance may have something to say.
func (x *change) punish(ctx context.Context, m Moderator, r *policy.ResolveReport, about accused) (policy.Verdict, error) {
	switch r.Action {
	case policy.ReportDelete:
		if about.event == nil {
			return policy.ReportsNoEvent, nil
		}
		return policy.Verdict{}, x.banEvent(ctx, m, *about.event)
	case policy.ReportDismiss, policy.ReportEscalate:
		return policy.Verdict{}, nil
	case policy.ReportKick, policy.ReportBan, policy.ReportTimeout:
	}
	if about.pubkey == nil {
		return policy.ReportsNobody, nil
	}
	judge := x.judgeCascade
	if r.Action == policy.ReportKick { // which leaves agents that are members what they are
		judge = x.judge
	}
	if v, err := judge(ctx, m, *about.pubkey); err != nil || !v.Accepted() {
		return v, err
	}
	switch r.Action {
	case policy.ReportKick:
		return x.expelSaying(ctx, *about.pubkey)
	case policy.ReportTimeout:
		return policy.Verdict{}, x.timeOut(ctx, m, *about.pubkey, r.Until)
	default:
		return policy.Verdict{}, x.ban(ctx, m, *about.pubkey, r.Until)
	}
}

// accused reads what a report is about; false if the community has no such report.
func (x *change) accused(ctx context.Context, report nostr.ID) (about accused, found bool, err error) {
	var raw []byte
	switch err := x.conn.QueryRow(ctx, sqlReport, x.community, report[:]).Scan(&raw); {
	case errors.Is(err, pgx.ErrNoRows):
		return about, false, nil
	case err != nil:
		return about, false, fmt.Errorf("read report: %w", err)
	}
	ev, err := wire.DecodeEvent(raw, wire.Limits{})
	if err != nil {
		return about, false, fmt.Errorf("decode report: %w", err)
	}
	if text, ok := ev.Tags.First("p"); ok {
		if key, err := nostr.ParsePubKey(text); err == nil {
			about.pubkey = &key
		}
	}
	text, _ := ev.Tags.First("e")
	id, err := nostr.ParseID(text)
	if err != nil {
		return about, true, nil //nolint:nilerr // it is about a key, or about nothing that can be told
	}
	about.event = &id
	var author []byte
	switch err := x.conn.QueryRow(ctx, sqlAuthor, x.community, id[:]).Scan(&author); {
	case errors.Is(err, pgx.ErrNoRows): // gone; the reporter's word has to do
	case err != nil:
		return about, false, fmt.Errorf("read author: %w", err)
	default:
		key := nostr.PubKey(author)
		about.pubkey = &key
	}
	return about, true, nil
}
