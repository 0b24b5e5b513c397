//go:build unix && !linux

package supervise

import "syscall"

// attributes puts a child into its own process group. These systems have no death signal: children of a
// supervisor that was killed without a chance to stop them stay.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
