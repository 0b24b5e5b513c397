package search

import (
	"errors"
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
	return errors.Join(
		config.Positive("limit", c.Limit),
		config.Positive("answer-bytes", c.AnswerBytes),
		config.Positive("count-limit", c.CountLimit),
		config.Positive("max-requests", c.MaxRequests),
		config.Positive("acquire-timeout", c.AcquireTimeout),
		config.Positive("query-timeout", c.QueryTimeout),
		config.Positive("access-wait", c.AccessWait),
		config.AtMost("limit", c.Limit, maxLimit),
	)
}
