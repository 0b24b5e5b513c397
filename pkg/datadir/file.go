package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxPrivateFile bounds what LoadOrCreate reads; keys and tokens are far smaller.
const maxPrivateFile = 64 << 10

// LoadOrCreate returns the content of the private file at path, without surrounding white space. If
// there is no such file, create's result is written to it with mode 0600, together with the directories on
// the way (0700), and created is true. When two processes create it at once, both get the same content.
// A file that others may read is refused.
func LoadOrCreate(path string, create func() ([]byte, error)) (content []byte, created bool, err error) {
	content, err = loadPrivate(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return content, false, err
	}
	content, err = create()
	if err != nil {
		return nil, false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, false, fmt.Errorf("make directory of %s: %w", path, err)
	}
	err = WriteNew(path, append(bytes.TrimSpace(content), '\n'))
	if errors.Is(err, fs.ErrExist) {
		content, err = loadPrivate(path)
		return content, false, err
	}
	return bytes.TrimSpace(content), err == nil, err
}

func loadPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read private file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read private file: %s may be read by others (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	if info.Size() > maxPrivateFile {
		return nil, fmt.Errorf("read private file: %s is larger than %d bytes", path, maxPrivateFile)
	}
	content, err := os.ReadFile(path) //nolint:gosec // the caller's own file
	if err != nil {
		return nil, fmt.Errorf("read private file: %w", err)
	}
	return bytes.TrimSpace(content), nil
}

// WriteNew writes a file of mode 0600 that is either whole on disk or not there. It fails with
// fs.ErrExist when there is one already.
func WriteNew(path string, content []byte) error {
	return writeVia(path, content, os.Link)
}

// Replace writes a file of mode 0600 in place of the one that may be there; readers see either whole.
func Replace(path string, content []byte) error {
	return writeVia(path, content, os.Rename)
}

// writeVia writes a temporary file beside path and puts it there with place.
func writeVia(path string, content []byte, place func(from, to string) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// After a rename there is nothing left to remove; after a link, the second name is.
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(content)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = place(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
