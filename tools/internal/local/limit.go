package local

import (
	"fmt"
	"syscall"
)

// RaiseFileLimit lets this process and its children hold as many sockets as the system allows.
func RaiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the open file limit: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the open file limit: %w", err)
	}
	return nil
}
