package supervise

import "syscall"

// attributes puts a child into its own process group and has the kernel kill it when the thread that
// forks it, and so the supervisor, dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
