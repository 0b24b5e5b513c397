//go:build unix

package cork

import (
	"errors"
	"os"
	"syscall"
)

// rawReads says that readNow works on this system.
const rawReads = true

// readNow reads from a socket that does not block; again says that there is nothing yet.
func readNow(fd uintptr, p []byte) (n int, again bool, err error) {
	for {
		n, err = syscall.Read(int(fd), p)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, true, nil
		default:
			return n, false, os.NewSyscallError("read", err)
		}
	}
}
