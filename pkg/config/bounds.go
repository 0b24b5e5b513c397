package config

import (
	"fmt"
	"time"
)

// Number is what the bounds of a setting may be.
type Number interface {
	~int | ~int32 | ~int64 | ~uint32
}

// Positive complains of a setting that is zero or negative; name is that of the setting in its struct. Join the
// results of several in a Validate method with errors.Join, which leaves out the nil ones.
func Positive[N Number](name string, v N) error {
	if v > 0 {
		return nil
	}
	return fmt.Errorf("%s must be positive, not %s", name, number(v))
}

// NotNegative complains of a setting that is negative.
func NotNegative[N Number](name string, v N) error {
	if v >= 0 {
		return nil
	}
	return fmt.Errorf("%s must not be negative, as %s is", name, number(v))
}

// AtMost complains of a setting that is more than most.
func AtMost[N Number](name string, v, most N) error {
	if v <= most {
		return nil
	}
	return fmt.Errorf("%s must be at most %s, not %s", name, number(most), number(v))
}

// number writes a value as it would be set: a duration with its unit.
func number(v any) string {
	if d, ok := v.(time.Duration); ok {
		return shortDuration(d)
	}
	return fmt.Sprint(v)
}
