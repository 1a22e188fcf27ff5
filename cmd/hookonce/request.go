package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hookonce/hookonce/proxy/webhook"
)

// requestFlags describe a provider and one of its requests on the command line.
type requestFlags struct {
	provider   string
	secrets    []string
	secretFile string
	headers    []string
	method     string
	url        string
	tolerance  time.Duration
	eventID    string
	hmac       webhook.HMACOptions
	token      string

	preset webhook.Provider
}

func (f *requestFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.provider, "provider", "", "who sends: stripe, github, … (required)")
	flags.StringArrayVar(&f.headers, "header", nil, "'Name: value', as often as needed")
	flags.StringVar(&f.method, "method", http.MethodPost, "the request's method")
	flags.StringVar(&f.url, "url", "", "the URL as the provider requested it (for providers that sign it, or have the id in its query)")
	flags.StringVar(&f.eventID, "event-id", "", "where the event id is, as in WEBHOOK_EVENT_ID, if not where the provider has it")
}

func (f *requestFlags) registerSigning(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.secrets, "secret", nil, "the provider's secret, as often as there are several")
	flags.StringVar(&f.secretFile, "secret-file", "", "a file with one secret a line; or a key or certificate in PEM")
	flags.StringVar(&f.hmac.Header, "hmac-header", "", "provider hmac: the header with the signature")
	flags.StringVar(&f.hmac.Algorithm, "hmac-algorithm", "", "provider hmac: sha256, sha1, sha512 or md5")
	flags.StringVar(&f.hmac.Encoding, "hmac-encoding", "", "provider hmac: hex, base64 or base64url")
	flags.StringVar(&f.hmac.Prefix, "hmac-prefix", "", "provider hmac: what stands before the signature")
	flags.StringVar(&f.hmac.Signed, "hmac-signed", "", "provider hmac: template over {body}, {timestamp}, {id}, {url}, {method}")
	flags.StringVar(&f.hmac.TimestampHeader, "hmac-timestamp-header", "", "provider hmac: the header with the timestamp")
	flags.StringVar(&f.hmac.IDHeader, "hmac-id-header", "", "provider hmac: the header with the id")
	flags.StringVar(&f.token, "token-header", "", "provider token: the header with the secret")
}

// check finds the preset.
func (f *requestFlags) check() error {
	if f.provider == "" {
		return misuse{errors.New("--provider is missing: who sends? (stripe, github, …)")}
	}
	preset, ok := webhook.Lookup(f.provider)
	if !ok {
		return misuse{fmt.Errorf("--provider %q is none that hookonce knows; it knows %s", f.provider, strings.Join(providerNames(), ", "))}
	}
	f.preset = preset
	return nil
}

// verifier makes the verifier of the flags' secrets.
func (f *requestFlags) verifier() (*webhook.Verifier, error) {
	options := webhook.Options{Tolerance: f.tolerance, HMAC: f.hmac, TokenHeader: f.token, Certificates: fetchCertificates()}
	secrets := f.secrets
	if f.secretFile != "" {
		content, err := os.ReadFile(f.secretFile)
		if err != nil {
			return nil, misuse{fmt.Errorf("--secret-file: %w", err)}
		}
		if certificate, err := parseCertificate(content); err == nil && !f.preset.NeedsSecret {
			options.Certificates = func(string) (*x509.Certificate, error) { return certificate, nil }
		} else {
			secrets = append(secrets, fileSecrets(string(content))...)
		}
	}
	if len(secrets) == 0 && f.preset.NeedsSecret {
		return nil, misuse{fmt.Errorf("--secret or --secret-file is missing: %s signs with a secret", f.provider)}
	}
	verifier, err := f.preset.NewVerifier(secrets, options)
	if err != nil {
		return nil, misuse{fmt.Errorf("--secret: %w", err)}
	}
	return verifier, nil
}

// request makes the request of the flags, around this body.
func (f *requestFlags) request(body []byte) (*webhook.Request, error) {
	r := &webhook.Request{Method: f.method, URL: f.url, Target: "/", Header: make(http.Header), Body: body}
	if f.url != "" {
		u, err := url.Parse(f.url)
		if err != nil || u.Host == "" {
			return nil, misuse{fmt.Errorf("--url %q is no URL; write it as https://hooks.example.com/webhook", f.url)}
		}
		r.Target = u.RequestURI()
	}
	for _, line := range f.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, misuse{fmt.Errorf("--header %q: write it as 'Name: value'", line)}
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return r, nil
}

// identity is an event's key, and where it comes from.
type identity struct {
	Key  string `json:"key"`  // "": never deduplicated
	From string `json:"from"` // in words
}

// identify finds the key as the proxy would, on an exact path of the unnamed
// webhook.
func (f *requestFlags) identify(r *webhook.Request) (identity, error) {
	expression := f.eventID
	if expression == "" {
		expression = f.preset.EventID
	}
	if expression == "" {
		expression = "sha256"
	}
	rule, err := webhook.ParseKeyRule(expression)
	if err != nil {
		return identity{}, misuse{fmt.Errorf("--event-id: %w", err)}
	}
	if rule.None() {
		return identity{From: "the rule is none: never deduplicated"}, nil
	}
	id, from, ok := rule.Find(r)
	switch {
	case ok:
		return identity{webhook.EventKey(id), "the event id at " + from}, nil
	case webhook.Nothing(r.Body):
		return identity{From: "no event id at " + rule.String() + ", and the body is empty: never deduplicated"}, nil
	case !rule.Body() && f.eventID == "" && f.preset.MissingID == "forward":
		return identity{From: "no event id at " + rule.String() + ", and a body hash would lose this provider's events: never deduplicated"}, nil
	case rule.Body():
		return identity{webhook.BodyKey(r.Body), "the body's SHA-256"}, nil
	}
	return identity{webhook.BodyKey(r.Body), "the body's SHA-256: there is no event id at " + rule.String()}, nil
}

func (p *program) keyCommand() *cobra.Command {
	var f requestFlags
	var o output
	c := &cobra.Command{
		Use:   "key",
		Short: "Print the key of a request: body on standard input",
		Long: "Prints the key under which an event is claimed, and where it comes from. The body is read from standard input.\n" +
			"A named webhook puts its name in front of it, a subtree the rest of the path.",
		Example: `  echo '{"id":"evt_1"}' | hookonce key --provider stripe`,
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := errors.Join(o.check(), f.check()); err != nil {
				return err
			}
			r, err := p.readRequest(&f)
			if err != nil {
				return err
			}
			found, err := f.identify(r)
			if err != nil {
				return err
			}
			if o.format == "text" {
				fmt.Fprintln(p.stderr, found.From)
			}
			return o.print(p.stdout, found, found.Key)
		},
	}
	f.register(c)
	o.register(c)
	return c
}

func (p *program) readRequest(f *requestFlags) (*webhook.Request, error) {
	body, err := io.ReadAll(p.stdin)
	if err != nil {
		return nil, fmt.Errorf("reading the body from standard input: %w", err)
	}
	return f.request(body)
}

func (p *program) verifyCommand() *cobra.Command {
	var f requestFlags
	var o output
	var at int64
	c := &cobra.Command{
		Use:   "verify",
		Short: "Say whether a request's signature is right, and if not, why: body on standard input",
		Long: "Says whether a request's signature is right, and if not, why: the way to find out why a provider is refused.\n" +
			"The body is read from standard input, byte for byte. Exit code 0: valid, 1: not.",
		Example: `  hookonce verify --provider github --secret s3cret --header 'X-Hub-Signature-256: sha256=…' <body.json`,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(), f.check()); err != nil {
				return err
			}
			if !c.Flags().Changed("tolerance") {
				f.tolerance = f.preset.Tolerance
			}
			verifier, err := f.verifier()
			if err != nil {
				return err
			}
			r, err := p.readRequest(&f)
			if err != nil {
				return err
			}
			now := time.Now()
			if c.Flags().Changed("at") {
				now = time.Unix(at, 0)
			}
			found, err := f.identify(r)
			if err != nil {
				return err
			}
			verdict := struct {
				Valid  bool   `json:"valid"`
				Reason string `json:"reason,omitempty"`
				Detail string `json:"detail,omitempty"`
				Key    string `json:"key"`
			}{Valid: true, Key: found.Key}
			said := "valid\nkey: " + cmp.Or(found.Key, "none") + " (" + found.From + ")"
			if failure := verifier.Verify(r, now); failure != nil {
				verdict.Valid, verdict.Reason, verdict.Detail = false, string(failure.Reason), failure.Detail
				said = "not valid: " + failure.Error()
			}
			if err := o.print(p.stdout, verdict, said); err != nil || verdict.Valid {
				return err
			}
			return errSaid
		},
	}
	f.register(c)
	f.registerSigning(c)
	o.register(c)
	c.Flags().Int64Var(&at, "at", 0, "Unix seconds at which the request arrived; default: now")
	c.Flags().DurationVar(&f.tolerance, "tolerance", 0, "how old or new a signature may be; 0: any age (default: the provider's)")
	return c
}
