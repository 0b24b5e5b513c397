package supervise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// readyInterval is the wait between two questions, readyTimeout the patience for one answer.
	readyInterval = 50 * time.Millisecond
	readyTimeout  = 2 * time.Second
)

// errExited says that a process ended before it was ready.
var errExited = errors.New("it ended before it was ready")

// awaitReady asks url until it answers 200, the process has exited, or ctx ends.
func awaitReady(ctx context.Context, url string, exited <-chan struct{}) error {
	if url == "" {
		return nil
	}
	client := &http.Client{Timeout: readyTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		last := ask(ctx, client, url)
		if last == nil {
			return nil
		}
		select {
		case <-exited:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("it was not ready in time: %w", last)
		case <-ticker.C:
		}
	}
}

// awaitReadyUntil is awaitReady with an end by channel.
func awaitReadyUntil(stop <-chan struct{}, url string, exited <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return awaitReady(ctx, url, exited)
}

func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
