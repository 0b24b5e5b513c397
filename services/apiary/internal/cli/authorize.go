package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/apiary-relay/apiary/services/apiary/internal/client"
)

type authorizeCmd struct {
	keyFlag `embed:""`
	URL     string `arg:"" help:"URL of the request, with its query."`
	Data    string `help:"Body of the request, byte by byte; - is a body of one dash." env:"-" placeholder:"TEXT"`
	Method  string `help:"Method. Default: POST with a body, GET without." env:"-"`
}

// run prints the header with which curl makes a request that a relay takes: -H "$(apiary client authorize URL)".
func (c *authorizeCmd) run(_ context.Context, env env) error {
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return usageError{fmt.Sprintf("%q is not an http:// or https:// URL", c.URL)}
	}
	key, err := c.load(env)
	if err != nil {
		return err
	}
	method, body := c.Method, []byte(nil)
	if c.Data != "" {
		body = []byte(c.Data)
	}
	switch {
	case method != "":
	case body != nil:
		method = http.MethodPost
	default:
		method = http.MethodGet
	}
	header, err := client.Authorize(key, method, c.URL, body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Out, "Authorization: %s\n", header)
	return err
}
