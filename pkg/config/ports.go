package config

import (
	"net"
	"strconv"
)

// Default ports. They are declared here once, for the services' defaults, the chart and the local
// cluster.
const (
	PortGateway  = 3000
	PortIngest   = 7401
	PortFanout   = 7402
	PortSearch   = 7403
	PortAudit    = 7404
	PortWorkflow = 7405
	PortMedia    = 7406
	PortAdmin    = 9090
)

// Loopback returns the default listen address for a port: reachable from this machine only, until an
// operator decides otherwise.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
