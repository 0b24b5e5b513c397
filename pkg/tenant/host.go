package tenant

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrHost is wrapped by every error of NormalizeHost and ValidateHost. A request whose host cannot be
// normalised belongs to no community.
var ErrHost = errors.New("malformed host")

const (
	// maxHost bounds the input: a DNS name of 253 bytes, a port, brackets.
	maxHost  = 261
	maxName  = 253
	maxLabel = 63
)

// NormalizeHost returns the one form under which a host (an authority: name, optional port) is
// registered and looked up: surrounding blanks trimmed, ASCII lower case, ports 80 and 443 removed,
// one trailing dot removed, 127.0.0.1 and [::1] turned into localhost, IPv6 in its canonical form in
// brackets. Other ports are kept. The result is a fixed point of NormalizeHost.
//
// Anything that is not an authority (a scheme, a path, user info, blanks inside, a bare IPv6 address)
// is an error that wraps ErrHost, and the caller fails closed.
func NormalizeHost(host string) (string, error) {
	host = strings.Trim(host, " \t\r\n")
	if host == "" || len(host) > maxHost {
		return "", fmt.Errorf("%w: length %d", ErrHost, len(host))
	}
	name, port, err := split(host)
	if err != nil {
		return "", err
	}
	if name, err = normalizeName(lower(name)); err != nil {
		return "", err
	}
	if port == 0 || port == 80 || port == 443 {
		return name, nil
	}
	return name + ":" + strconv.Itoa(port), nil
}

// ValidateHost accepts only a host that is already in normal form and whose labels could be
// registered in DNS: [a-z0-9-], at most 63 bytes, no hyphen at an edge. It is the check for creating a
// community; for reading, NormalizeHost is more lenient.
func ValidateHost(host string) error {
	norm, err := NormalizeHost(host)
	if err != nil {
		return err
	}
	if norm != host {
		return fmt.Errorf("%w: not in canonical form", ErrHost)
	}
	if host[0] == '[' {
		return nil
	}
	name, _, _ := strings.Cut(host, ":")
	for label := range strings.SplitSeq(name, ".") {
		if strings.Contains(label, "_") || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%w: label %q", ErrHost, label)
		}
	}
	return nil
}

// Candidates returns the registered names that a normalised host may stand for, best first: the exact
// authority if it has a port, then the name without its port.
func Candidates(host string) []string {
	end := strings.LastIndexByte(host, ':')
	if end < 0 || strings.HasSuffix(host, "]") {
		return []string{host}
	}
	return []string{host, host[:end]}
}

// split cuts an authority into name and port; the port is 0 when there is none.
func split(host string) (name string, port int, err error) {
	rest := ""
	if host[0] == '[' {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return "", 0, fmt.Errorf("%w: unclosed bracket", ErrHost)
		}
		name, rest = host[:end+1], host[end+1:]
	} else {
		name = host
		if i := strings.IndexByte(host, ':'); i >= 0 {
			name, rest = host[:i], host[i:]
		}
	}
	if rest == "" {
		return name, 0, nil
	}
	digits := rest[1:]
	if rest[0] != ':' || digits == "" || len(digits) > 5 {
		return "", 0, fmt.Errorf("%w: port", ErrHost)
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return "", 0, fmt.Errorf("%w: port", ErrHost)
		}
		port = port*10 + int(digits[i]-'0')
	}
	if port == 0 || port > 65535 {
		return "", 0, fmt.Errorf("%w: port", ErrHost)
	}
	return name, port, nil
}

// normalizeName works on the lower-case name without port.
func normalizeName(name string) (string, error) {
	if strings.HasPrefix(name, "[") {
		addr, err := netip.ParseAddr(name[1 : len(name)-1])
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", fmt.Errorf("%w: IPv6 address", ErrHost)
		}
		if addr == netip.IPv6Loopback() {
			return "localhost", nil
		}
		return "[" + addr.String() + "]", nil
	}
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > maxName {
		return "", fmt.Errorf("%w: length %d", ErrHost, len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel {
			return "", fmt.Errorf("%w: label %q", ErrHost, label)
		}
		for i := range len(label) {
			if !isNameByte(label[i]) {
				return "", fmt.Errorf("%w: character %q", ErrHost, label[i])
			}
		}
	}
	if name == "127.0.0.1" {
		return "localhost", nil
	}
	return name, nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// lower changes ASCII letters only: a Kelvin sign must not become a k.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
