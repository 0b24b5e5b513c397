package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// span is a length of time as a flag has it: a time.Duration, which may begin with whole days, such as 7d or 1d12h. It is
// more than nothing: the zero span is that of a flag which was not given.
type span time.Duration

var errSpan = errors.New("must be a length of time, such as 30m, 12h, 7d or 1d12h")

// UnmarshalText reads what was given.
func (s *span) UnmarshalText(text []byte) error {
	days, rest, found := strings.Cut(string(text), "d")
	if !found {
		days, rest = "0", string(text)
	}
	const day = 24 * time.Hour
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > uint64(math.MaxInt64/day) {
		return errSpan
	}
	var part time.Duration
	if rest != "" || !found {
		if part, err = time.ParseDuration(rest); err != nil || part < 0 {
			return errSpan
		}
	}
	sum := time.Duration(n)*day + part
	if sum <= 0 {
		return errSpan
	}
	*s = span(sum)
	return nil
}
