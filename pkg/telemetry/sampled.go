package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Sampled returns a logger that writes a repeated line (same level and message) at most once per
// interval, with the number of lines left out since as the attribute "suppressed". Use it where one
// cause makes thousands of lines. Messages are static, so the memory is bounded by the code; a
// thousand of them is the limit, after which lines pass unsampled.
func Sampled(log *slog.Logger, interval time.Duration) *slog.Logger {
	return slog.New(&sampledHandler{next: log.Handler(), seen: &seenLines{interval: interval, lines: map[lineKey]*line{}}})
}

const maxSampledLines = 1000

type lineKey struct {
	level   slog.Level
	message string
}

type line struct {
	last       time.Time
	suppressed int64
}

// seenLines is shared by a sampled logger and everything derived from it by With.
type seenLines struct {
	interval time.Duration
	mu       sync.Mutex
	lines    map[lineKey]*line // guarded by mu, as are its values
}

// admit says whether a line is written now and how many were left out before it.
func (s *seenLines) admit(key lineKey, now time.Time) (suppressed int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[key]
	switch {
	case l == nil:
		if len(s.lines) < maxSampledLines {
			s.lines[key] = &line{last: now}
		}
		return 0, true
	case now.Sub(l.last) < s.interval:
		l.suppressed++
		return 0, false
	}
	suppressed = l.suppressed
	l.last, l.suppressed = now, 0
	return suppressed, true
}

type sampledHandler struct {
	next slog.Handler
	seen *seenLines
}

func (h *sampledHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.next.Enabled(ctx, l)
}

func (h *sampledHandler) Handle(ctx context.Context, r slog.Record) error {
	suppressed, ok := h.seen.admit(lineKey{r.Level, r.Message}, r.Time)
	if !ok {
		return nil
	}
	if suppressed > 0 {
		r.AddAttrs(slog.Int64("suppressed", suppressed))
	}
	return h.next.Handle(ctx, r)
}

func (h *sampledHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &sampledHandler{next: h.next.WithAttrs(attrs), seen: h.seen}
}

func (h *sampledHandler) WithGroup(name string) slog.Handler {
	return &sampledHandler{next: h.next.WithGroup(name), seen: h.seen}
}
