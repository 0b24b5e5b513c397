package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// ErrUnhealthy is returned by Probe for an answer other than 200.
var ErrUnhealthy = errors.New("unhealthy")

// Probe asks a process's admin listener at addr (host:port) for a path such as /readyz. It is the
// container health check of images that hold no shell.
func Probe(ctx context.Context, addr, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("probe %s: %w", addr, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("probe %s: %w", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("probe %s%s: %w: status %d", addr, path, ErrUnhealthy, resp.StatusCode)
	}
	return nil
}
