package bus

import "github.com/nats-io/nats.go/jetstream"

// JetStream gives tests the driver, to purge and delete streams behind the package's back.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// WithCheckEvery makes the checks of a consumer more frequent than tests would want to wait for.
var WithCheckEvery = withCheckEvery
