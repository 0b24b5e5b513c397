package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// hostPortTag marks a setting that is an address, HOST:PORT. Its value lists what else is allowed: hostPortEmpty
// and hostPortUnix, separated by commas.
const (
	hostPortTag   = "hostport"
	hostPortEmpty = "empty"
	hostPortUnix  = "unix"

	unixScheme = "unix://"
)

// CheckHostPort says what keeps s from being HOST:PORT. HOST may be empty, for every network of the machine when
// it is to be listened on; an IPv6 address stands in brackets; PORT is a number from 0 to 65535. Whether there
// is such a host is not asked.
func CheckHostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		reason := err.Error()
		if addr := (*net.AddrError)(nil); errors.As(err, &addr) {
			reason = addr.Err
		}
		return fmt.Errorf("%q is not HOST:PORT: %s", s, reason)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not HOST:PORT: port %q is not a number from 0 to 65535", s, port)
	}
	if _, err := netip.ParseAddr(host); err == nil || isHostName(host) {
		return nil
	}
	return fmt.Errorf("%q is not HOST:PORT: %q is neither a host's name nor an address", s, host)
}

// isHostName is lenient, since name servers decide; it finds URLs, slips of the keyboard and shell residue.
func isHostName(host string) bool {
	for i := range len(host) {
		c := host[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// checkHostPorts looks at the settings that have hostPortTag. A default is right whatever it is: a program may
// give a word of its own a meaning.
func (l *Loaded) checkHostPorts() error {
	var errs []error
	for _, f := range l.flags() {
		value := f.Target.String()
		if !f.Tag.Has(hostPortTag) || (f.HasDefault && value == f.Default) {
			continue
		}
		if err := checkAddress(value, strings.Split(f.Tag.Get(hostPortTag), ",")); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.naming(f), err))
		}
	}
	return errors.Join(errs...)
}

func checkAddress(value string, allowed []string) error {
	var empty, unix bool
	for _, a := range allowed {
		empty, unix = empty || a == hostPortEmpty, unix || a == hostPortUnix
	}
	if file, ok := strings.CutPrefix(value, unixScheme); ok && unix {
		if !path.IsAbs(file) {
			return fmt.Errorf("%q is not unix:///PATH with an absolute path", value)
		}
		return nil
	}
	if value == "" && empty {
		return nil
	}
	if err := CheckHostPort(value); err != nil {
		if unix {
			return fmt.Errorf("%w (want one such as 127.0.0.1:7400, or unix:///PATH)", err)
		}
		return fmt.Errorf("%w (want one such as 127.0.0.1:3000)", err)
	}
	return nil
}

// naming is how a setting is called in a complaint: its flag, and where its value came from unless that was the
// command line.
func (l *Loaded) naming(f *kong.Flag) string {
	name := "--" + f.Name
	envs := l.resolver.envs[f]
	switch source := l.resolver.sources[f]; {
	case source.Kind == FromFile || source.Kind == FromEnv:
		return name + " (from " + source.Name + ")"
	case len(envs) > 0:
		return name + " ($" + strings.Join(envs, ", $") + ")"
	}
	return name
}
