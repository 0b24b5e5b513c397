package private

import "syscall"

// serverAttr puts the server in a process group of its own and has it shut down fast when this process
// dies.
func serverAttr(c *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: c, Setpgid: true, Pdeathsig: syscall.SIGINT}
}
