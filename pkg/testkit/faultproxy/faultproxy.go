// Package faultproxy gives a test a TCP proxy whose connections it can delay, cut, hold and heal.
package faultproxy

import (
	"testing"
	"time"
)

// Proxy forwards connections to a target.
type Proxy struct{}

// New starts a proxy on a free loopback port. target is host:port, or the absolute path of a unix socket.
func New(t testing.TB, target string) *Proxy { return &Proxy{} }

// Addr is where to connect, host:port.
func (p *Proxy) Addr() string { return "" }

// Delay holds every chunk for d, in each direction; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {}

// Cut closes all connections and refuses new ones until Heal.
func (p *Proxy) Cut() {}

// Blackhole forwards nothing and closes nothing until Heal.
func (p *Proxy) Blackhole() {}

// Heal ends Cut, Blackhole and Delay.
func (p *Proxy) Heal() {}
