package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// sent is what came back.
type sent struct {
	Status  int    `json:"status"`
	Outcome string `json:"outcome"`
	Body    string `json:"body"`
}

func (p *program) sendCommand() *cobra.Command {
	var f requestFlags
	var o output
	var to, id, data string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "send URL",
		Short: "Sign a body as a provider would, and post it",
		Long: "Signs a body as a provider would and posts it to URL: the way to try hookonce out. Without --data the body is read\n" +
			"from standard input. Exit code 0: answered 2xx, 1: not.",
		Example: `  hookonce send http://localhost:8080/webhook/stripe --provider stripe --secret whsec_demo --data '{"id":"evt_1"}'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				to = args[0]
			}
			if u, err := url.Parse(to); len(args) != 1 || err != nil || u.Host == "" {
				return misuse{fmt.Errorf("%s takes one URL to post to, like http://localhost:8080/webhook/stripe", c.CommandPath())}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(), f.check()); err != nil {
				return err
			}
			body := []byte(data)
			if !c.Flags().Changed("data") {
				var err error
				if body, err = io.ReadAll(p.stdin); err != nil {
					return fmt.Errorf("reading the body from standard input: %w", err)
				}
			}
			if f.url == "" {
				f.url = to
			}
			verifier, err := f.verifier()
			if err != nil {
				return err
			}
			r, err := f.request(body)
			if err != nil {
				return err
			}
			if r.Header.Get("Content-Type") == "" {
				r.Header.Set("Content-Type", guessType(body))
			}
			if err := verifier.Sign(r, id, time.Now()); err != nil {
				return err
			}
			address, err := url.Parse(to)
			if err != nil {
				return err
			}
			if _, query, ok := strings.Cut(r.Target, "?"); ok {
				address.RawQuery = query
			}
			out, err := http.NewRequestWithContext(c.Context(), f.method, address.String(), bytes.NewReader(r.Body))
			if err != nil {
				return misuse{err}
			}
			out.Header = r.Header
			response, err := (&http.Client{Timeout: timeout}).Do(out)
			if err != nil {
				return fmt.Errorf("%w (is hookonce running there?)", err)
			}
			defer response.Body.Close()
			answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
			if err != nil {
				return err
			}
			back := sent{response.StatusCode, response.Header.Get("Hookonce-Outcome"), string(answer)}
			said := fmt.Sprintf("%d %s", back.Status, back.Outcome)
			if back.Outcome == "" {
				said += "(no Hookonce-Outcome: this path is no webhook's, MODE is observe, or hookonce does not stand there)"
			}
			if len(answer) > 0 {
				said += "\n" + back.Body
			}
			if err := o.print(p.stdout, back, said); err != nil {
				return err
			}
			if back.Status/100 != 2 {
				return errSaid
			}
			return nil
		},
	}
	f.register(c)
	f.registerSigning(c)
	o.register(c)
	c.Flags().StringVar(&data, "data", "", "the body")
	c.Flags().StringVar(&id, "id", "", "the event id, for providers that have it in a header (default: a new one)")
	c.Flags().DurationVar(&timeout, "timeout", 90*time.Second, "how long to wait for the answer")
	c.Flags().Lookup("url").Usage = "the URL that is signed, if it is not the one that is posted to"
	return c
}

func guessType(body []byte) string {
	trimmed := strings.TrimSpace(string(body))
	if strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		return "application/json"
	}
	return "application/x-www-form-urlencoded"
}
