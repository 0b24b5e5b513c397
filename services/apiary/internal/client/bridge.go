package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

const (
	// maxAnswerBytes bounds an answer over HTTP: what one filter may return, of events of a usual size.
	maxAnswerBytes = 64 << 20
	// requestTimeout bounds one HTTP request. The relay itself gives up earlier.
	requestTimeout = 30 * time.Second
)

// bridge asks a relay by signed HTTP requests, as services/docs/http.md says: each is a connection of its own.
type bridge struct {
	cfg  Config
	http *http.Client
}

func newBridge(cfg Config) *bridge {
	client := cfg.httpClient()
	// A request is signed for one URL: elsewhere it would be refused, and nobody else is to have it.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &bridge{cfg: cfg, http: client}
}

// Close has nothing to end.
func (*bridge) Close() {}

// Publish posts an event.
func (b *bridge) Publish(ctx context.Context, event *nostr.Event) (ok bool, message string, err error) {
	status, body, err := b.post(ctx, "/events", event.AppendJSON(nil))
	if err != nil {
		return false, "", err
	}
	var verdict struct {
		Accepted bool   `json:"accepted"`
		Message  string `json:"message"`
	}
	if status != http.StatusOK {
		text, err := refusal(status, body)
		if err == nil && (status == http.StatusTooManyRequests || status >= http.StatusInternalServerError) {
			err = errors.New(Printable(text)) // it was not judged
		}
		return false, text, err
	}
	if err := json.Unmarshal(body, &verdict); err != nil {
		return false, "", fmt.Errorf("read the verdict: %w", err)
	}
	return verdict.Accepted, verdict.Message, nil
}

// stored posts a filter.
func (b *bridge) stored(ctx context.Context, filter nostr.Filter) ([]message, error) {
	status, body, err := b.post(ctx, "/query", append(filter.AppendJSON([]byte{'['}), ']'))
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		text, err := refusal(status, body)
		if err != nil {
			return nil, err
		}
		return nil, refusedQuery(text)
	}
	var events []json.RawMessage
	if err := json.Unmarshal(body, &events); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	messages := make([]message, 0, len(events))
	for _, raw := range events {
		m, err := parse(raw)
		if err == nil && answers(&filter, m.event) && len(messages) < maxAnswer {
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// invite posts the wish for a code.
func (b *bridge) invite(ctx context.Context, wish Wish) (string, error) {
	asked, err := json.Marshal(wish.terms())
	if err != nil {
		return "", err
	}
	status, body, err := b.post(ctx, "/api/invites", asked)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		text, err := refusal(status, body)
		if err != nil {
			return "", err
		}
		return "", errors.New("the relay makes no invite: " + Printable(text))
	}
	var made struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(body, &made); err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	return made.Code, nil
}

// url is that of a path of the relay.
func (b *bridge) url(path string) string { return strings.TrimSuffix(b.cfg.URL, "/") + path }

// post makes a signed POST of JSON and returns the answer.
func (b *bridge) post(ctx context.Context, path string, body []byte) (status int, answer []byte, err error) {
	authorization, err := authorize(b.cfg.Key, http.MethodPost, b.url(path), body, b.cfg.Attestation)
	if err != nil {
		return 0, nil, err
	}
	return b.request(ctx, http.MethodPost, path, body, authorization)
}

// request makes a request, of JSON if it has a body, and returns the answer. It is unsigned if authorization is empty.
func (b *bridge) request(ctx context.Context, method, path string, body []byte, authorization string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, b.url(path), bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := b.http.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("connect to %s: %w", b.cfg.where(), dialError(nil, err))
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read from the relay: %w", readable(err))
	}
	if len(answer) > maxAnswerBytes {
		return 0, nil, errors.New("the answer is too long: ask for less with --limit")
	}
	return response.StatusCode, answer, nil
}

// refusal returns the relay's reason for an answer that is no success. The error is ErrAuth when it does not accept the
// key or the signature, and another one when there is no reason.
func refusal(status int, body []byte) (string, error) {
	var answer struct {
		Error string `json:"error"`
	}
	switch err := json.Unmarshal(body, &answer); {
	case status == http.StatusNotFound:
		return "", errNoRelay
	case err != nil || answer.Error == "":
		return "", fmt.Errorf("the server answers %d %s", status, http.StatusText(status))
	case status == http.StatusUnauthorized:
		return "", fmt.Errorf("%w: %s", ErrAuth, Printable(answer.Error))
	}
	return answer.Error, nil
}

// Authorize returns the Authorization header of one HTTP request, signed as NIP-98 says: good for a minute, for this
// method, URL and body. A nil body is that of a request without one.
func Authorize(key *nostr.SecretKey, method, url string, body []byte) (string, error) {
	return authorize(key, method, url, body, nil)
}

// authorize is Authorize with a tag that says whose agent the key is, nil for none.
func authorize(key *nostr.SecretKey, method, url string, body []byte, attestation nostr.Tag) (string, error) {
	event := &nostr.Event{
		CreatedAt: time.Now().Unix(),
		Kind:      nostr.KindHTTPAuth,
		// A relay takes a token once: what tells two equal requests of one second apart is the nonce.
		Tags: nostr.Tags{{"u", url}, {"method", method}, {"nonce", rand.Text()}},
	}
	if body != nil {
		sum := sha256.Sum256(body)
		event.Tags = append(event.Tags, nostr.Tag{"payload", hex.EncodeToString(sum[:])})
	}
	if attestation != nil {
		event.Tags = append(event.Tags, attestation)
	}
	if err := event.Sign(key); err != nil {
		return "", err
	}
	return "Nostr " + base64.StdEncoding.EncodeToString(event.AppendJSON(nil)), nil
}
