//go:build unix && !linux

package private

import "syscall"

// serverAttr puts the server in a process group of its own. These systems do not tell a child of its
// parent's death: the next Start stops what was left behind.
func serverAttr(c *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: c, Setpgid: true}
}
