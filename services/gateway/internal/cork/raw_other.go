//go:build !unix

package cork

import "errors"

// rawReads says that readNow works on this system.
const rawReads = false

func readNow(uintptr, []byte) (n int, again bool, err error) { return 0, false, errors.ErrUnsupported }
