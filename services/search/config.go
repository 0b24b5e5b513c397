package search

import (
	"errors"
	"fmt"
	"time"

	"github.com/apiary-relay/apiary/pkg/config"
)

// Config is what an operator decides about search. Values are bounds; none may be switched off.
type Config struct {
	Limit          int           `help:"Default and largest number of stored events that one filter returns." default:"500"`
	AnswerBytes    int64         `help:"Most bytes of events in the answer to one query, shared evenly by its filters." default:"16777216"`
	CountLimit     int           `help:"Largest result of COUNT; what counts more is refused." default:"100000"`
	MaxRequests    int64         `help:"Queries and counts in hand, as many questions about access, and as many about hosts; more are refused at once. With answer-bytes this bounds memory." default:"64"`
	AcquireTimeout time.Duration `help:"Longest wait for a database connection." default:"2s"`
	QueryTimeout   time.Duration `help:"Longest time for all statements of one request; the statement timeout of the pool should be shorter." default:"15s"`
	AccessWait     time.Duration `help:"Longest wait for a replica to catch up before an access question is refused." default:"1s"`
}

// DefaultConfig returns the configuration of a service that was told nothing.
func DefaultConfig() Config { return config.MustDefault(Config{}) }

// maxLimit keeps one filter's rows within what one answer can sensibly hold.
const maxLimit = 10_000

// Validate reports everything that cannot work.
func (c *Config) Validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive, not %d", name, v))
		}
	}
	positive("limit", int64(c.Limit))
	positive("answer-bytes", c.AnswerBytes)
	positive("count-limit", int64(c.CountLimit))
	positive("max-requests", c.MaxRequests)
	positive("acquire-timeout", int64(c.AcquireTimeout))
	positive("query-timeout", int64(c.QueryTimeout))
	positive("access-wait", int64(c.AccessWait))
	if c.Limit > maxLimit {
		errs = append(errs, fmt.Errorf("limit must be at most %d, not %d", maxLimit, c.Limit))
	}
	return errors.Join(errs...)
}
