package main

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/proxy/webhook"
)

// WebhookConfig is one webhook's variables, which begin with WEBHOOK_, or with
// WEBHOOK_<NAME>_ where WEBHOOKS names several.
type WebhookConfig struct {
	Path       string `env:"PATH"`
	Provider   string `env:"PROVIDER"`
	Secret     string `env:"SECRET"`
	SecretFile string `env:"SECRET_FILE"`
	Tolerance  string `env:"TOLERANCE"`
	PublicURL  string `env:"PUBLIC_URL"`

	EventID   string `env:"EVENT_ID"`
	MissingID string `env:"MISSING_ID"`
	Namespace string `env:"NAMESPACE"`

	ReleaseOn   string `env:"RELEASE_ON" envDefault:"3xx,4xx,5xx"`
	NotAccepted string `env:"NOT_ACCEPTED"`

	DuplicateStatus      int    `env:"DUPLICATE_STATUS"`
	DuplicateBody        string `env:"DUPLICATE_BODY"`
	DuplicateContentType string `env:"DUPLICATE_CONTENT_TYPE"`
	Duplicate            string `env:"DUPLICATE"`
	InvalidStatus        int    `env:"INVALID_STATUS"`
	Handshake            string `env:"HANDSHAKE" envDefault:"known"`
	Get                  string `env:"GET" envDefault:"forward"`

	HMACHeader          string `env:"HMAC_HEADER"`
	HMACAlgorithm       string `env:"HMAC_ALGORITHM"`
	HMACEncoding        string `env:"HMAC_ENCODING"`
	HMACPrefix          string `env:"HMAC_PREFIX"`
	HMACSigned          string `env:"HMAC_SIGNED"`
	HMACTimestampHeader string `env:"HMAC_TIMESTAMP_HEADER"`
	HMACIDHeader        string `env:"HMAC_ID_HEADER"`
	TokenHeader         string `env:"TOKEN_HEADER"`
	SNSCertFile         string `env:"SNS_CERT_FILE"`

	name      string // "" for the unnamed webhook
	prefix    string // of its variables
	bare      bool   // NAMESPACE is set, and empty: nothing stands before its keys
	provider  webhook.Provider
	key       webhook.KeyRule
	tolerance time.Duration
	releaseOn []string
	verifier  atomic.Pointer[webhook.Verifier]

	certificates func(url string) (*x509.Certificate, error) // fetched, and remembered
	secrets      string                                      // what the secret file held when it was last read
}

// label names the webhook in metrics and logs.
func (w *WebhookConfig) label() string {
	if w.name == "" {
		return "default"
	}
	return w.name
}

var webhookName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

func variablePrefix(name string) string {
	return "WEBHOOK_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_"
}

// loadWebhooks parses every webhook, and lists the variables that there are.
func loadWebhooks(c *Config, vars map[string]string, f *faults) (hooks []*WebhookConfig, known []string) {
	if c.Webhooks == "" {
		w := loadWebhook("", "WEBHOOK_", vars, f)
		return []*WebhookConfig{w}, names(w, w.prefix)
	}
	for _, name := range strings.Split(c.Webhooks, ",") {
		name = strings.TrimSpace(name)
		if !webhookName.MatchString(name) {
			f.add("WEBHOOKS", "%q is no name; use a-z, 0-9, - and _, separated by commas", name)
			continue
		}
		prefix := variablePrefix(name)
		if slices.ContainsFunc(hooks, func(w *WebhookConfig) bool { return w.prefix == prefix }) {
			f.add("WEBHOOKS", "%q is there twice, or another name has the same variables (%s…)", name, prefix)
			continue
		}
		w := loadWebhook(name, prefix, vars, f)
		hooks = append(hooks, w)
		known = append(known, names(w, prefix)...)
	}
	paths, scopes := map[string]string{}, map[string]string{}
	for _, w := range hooks {
		if other, ok := paths[w.Path]; ok {
			f.add(w.prefix+"PATH", "%s is the path of %s, too", w.Path, other)
		}
		paths[w.Path] = w.name
		scope := w.scope()
		if scope == "" && strings.HasSuffix(w.Path, "/") {
			f.add(w.prefix+"NAMESPACE", "empty is for an exact path: a subtree's keys would begin like those of other webhooks")
		}
		if other, ok := scopes[scope]; ok {
			f.add(w.prefix+"NAMESPACE", "%q is where the keys of %s are; their events would take each other for duplicates", scope, other)
		}
		scopes[scope] = w.name
	}
	for name := range vars {
		if bare, ok := strings.CutPrefix(name, "WEBHOOK_"); ok && !slices.Contains(known, name) &&
			slices.Contains(names(&WebhookConfig{}, ""), bare) {
			f.add(name, "WEBHOOKS is set, so say whose it is: WEBHOOK_<NAME>_%s", bare)
			delete(vars, name)
		}
	}
	return hooks, known
}

func (w *WebhookConfig) scope() string {
	if w.Namespace != "" || w.bare {
		return w.Namespace
	}
	return w.name
}

func loadWebhook(name, prefix string, vars map[string]string, f *faults) *WebhookConfig {
	w := &WebhookConfig{name: name, prefix: prefix, certificates: fetchCertificates()}
	parseInto(w, prefix, vars, f)
	fault := func(variable, format string, arguments ...any) { f.add(prefix+variable, format, arguments...) }

	if value, set := vars[prefix+"NAMESPACE"]; set && value == "" {
		w.bare = true
	}
	if w.Path == "" && name != "" {
		w.Path = "/webhook/" + name
	}
	switch u, err := url.ParseRequestURI(w.Path); {
	case w.Path == "":
		fault("PATH", "not set; it is where the provider's requests arrive: /webhook/stripe, or a subtree like /webhook/")
	case err != nil || !cleanPath(w.Path) || u.RawQuery != "" || strings.ContainsAny(w.Path, "?#*{} "):
		fault("PATH", "%q is no path; write it as /webhook/stripe, or as a subtree like /webhook/, percent-encoded, without a query", w.Path)
	}
	if w.Provider == "" {
		w.Provider = name
	}
	preset, ok := webhook.Lookup(w.Provider)
	switch {
	case w.Provider == "":
		fault("PROVIDER", "not set; name who sends (stripe, github, …), hmac, token or basic for others, "+
			"or none if nothing is to be verified")
	case !ok:
		fault("PROVIDER", "%q is no provider that hookonce knows; it knows %s", w.Provider, strings.Join(providerNames(), ", "))
	}
	w.provider = preset

	w.tolerance = preset.Tolerance
	if w.Tolerance != "" {
		d, err := time.ParseDuration(w.Tolerance)
		if err != nil || d < 0 {
			fault("TOLERANCE", "not a duration; write it as 300s or 5m, or 0 for no age check")
		}
		w.tolerance = d
	}
	w.PublicURL = w.checkPublicURL(fault)

	rule := w.EventID
	if rule == "" {
		rule = preset.EventID
	}
	if rule == "" {
		rule = "sha256"
	}
	var err error
	if w.key, err = webhook.ParseKeyRule(rule); err != nil {
		fault("EVENT_ID", "%v", err)
	}
	if w.MissingID == "" {
		w.MissingID = preset.MissingID
		if w.EventID != "" || w.MissingID == "" {
			w.MissingID = string(proxy.MissingSHA256)
		}
	}
	oneOf(f, prefix+"MISSING_ID", w.MissingID, "sha256", "forward", "reject")
	if w.Namespace != "" && !webhookName.MatchString(w.Namespace) {
		fault("NAMESPACE", "%q; use a-z, 0-9, - and _", w.Namespace)
	}
	w.checkAnswers(fault)
	w.checkApplies(fault)
	oneOf(f, prefix+"HANDSHAKE", w.Handshake, "known", "open")
	oneOf(f, prefix+"GET", w.Get, "forward", "reject")
	if w.Duplicate == "" {
		w.Duplicate = "plain"
		if preset.Replay {
			w.Duplicate = "replay"
		}
	}
	oneOf(f, prefix+"DUPLICATE", w.Duplicate, "plain", "replay")
	if ok && (w.Provider != "token" || w.TokenHeader != "") {
		w.checkSecret(vars, fault)
	}
	return w
}

// checkApplies finds settings that would silently not hold.
func (w *WebhookConfig) checkApplies(fault faultFunc) {
	hmac := map[string]string{"HMAC_HEADER": w.HMACHeader, "HMAC_ALGORITHM": w.HMACAlgorithm, "HMAC_ENCODING": w.HMACEncoding,
		"HMAC_PREFIX": w.HMACPrefix, "HMAC_SIGNED": w.HMACSigned, "HMAC_TIMESTAMP_HEADER": w.HMACTimestampHeader, "HMAC_ID_HEADER": w.HMACIDHeader}
	for variable, value := range hmac {
		if value != "" && w.Provider != "hmac" {
			fault(variable, "is for provider hmac, and this is %s, which is known; leave it out", w.Provider)
		}
	}
	switch {
	case w.Provider == "token" && w.TokenHeader == "":
		fault("TOKEN_HEADER", "not set; provider token needs the name of the header that has the shared secret")
	case w.Provider != "token" && w.TokenHeader != "":
		fault("TOKEN_HEADER", "is for provider token, and this is %s; leave it out", w.Provider)
	}
	if w.SNSCertFile != "" && w.Provider != "aws-sns" {
		fault("SNS_CERT_FILE", "is for provider aws-sns, and this is %s; leave it out", w.Provider)
	}
}

// cleanPath says whether a path is spelt as requests are expected to spell it.
func cleanPath(p string) bool {
	for i := range len(p) {
		if p[i] >= 0x80 {
			return false
		}
	}
	return p == "/" || path.Clean(p) == strings.TrimSuffix(p, "/")
}

func providerNames() []string {
	var all []string
	for _, p := range webhook.Providers() {
		all = append(all, p.Name)
	}
	return all
}

type faultFunc func(variable, format string, arguments ...any)

func (w *WebhookConfig) checkPublicURL(fault faultFunc) string {
	if w.PublicURL == "" {
		if w.provider.NeedsURL || strings.Contains(w.HMACSigned, "{url}") {
			fault("PUBLIC_URL", "not set; %s signs the URL it calls: set it to scheme and host as the provider has them, "+
				"https://hooks.example.com, with a prefix if a path is cut off on the way", w.Provider)
		}
		return ""
	}
	u, err := url.Parse(w.PublicURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		fault("PUBLIC_URL", "not scheme and host; write it as https://hooks.example.com: the request's own path and query follow")
	}
	return strings.TrimSuffix(w.PublicURL, "/")
}

var releaseClass = regexp.MustCompile(`^([345]xx|[345]\d\d)$`)

func (w *WebhookConfig) checkAnswers(fault faultFunc) {
	preset := w.provider
	for _, class := range strings.Split(w.ReleaseOn, ",") {
		class = strings.TrimSpace(class)
		if !releaseClass.MatchString(class) {
			fault("RELEASE_ON", "%q; list classes or statuses from 3xx to 5xx: 4xx,5xx or 404,429,5xx", class)
		}
		w.releaseOn = append(w.releaseOn, class)
	}
	if !slices.Contains(w.releaseOn, "5xx") {
		fault("RELEASE_ON", "has to have 5xx: an event that the application failed on would be lost")
	}
	if w.DuplicateStatus == 0 {
		w.DuplicateStatus = max(preset.DuplicateStatus, 0)
	}
	if w.DuplicateStatus == 0 {
		w.DuplicateStatus = http.StatusOK
	}
	if w.DuplicateStatus/100 != 2 {
		fault("DUPLICATE_STATUS", "%d; only a 2xx tells the provider that its event is done: another would make it send for ever", w.DuplicateStatus)
	}
	if w.DuplicateBody == "" {
		w.DuplicateBody = preset.DuplicateBody
	}
	if w.DuplicateContentType == "" {
		w.DuplicateContentType = preset.DuplicateContentType
	}
	if w.DuplicateBody != "" && w.DuplicateStatus == http.StatusNoContent {
		fault("DUPLICATE_BODY", "an answer 204 has no body; set DUPLICATE_STATUS to 200 or leave the body out")
	}
	if w.InvalidStatus == 0 {
		w.InvalidStatus = preset.InvalidStatus
	}
	if w.InvalidStatus == 0 {
		w.InvalidStatus = http.StatusUnauthorized
	}
	if class := w.InvalidStatus / 100; class != 4 && class != 5 {
		fault("INVALID_STATUS", "%d; a refused delivery has to be answered 4xx or 5xx", w.InvalidStatus)
	}
}

// checkSecret makes the first verifier, and says what is wrong with a secret.
func (w *WebhookConfig) checkSecret(vars map[string]string, fault faultFunc) {
	_, set := vars[w.prefix+"SECRET"]
	secrets := lines(w.Secret)
	switch {
	case set && w.SecretFile != "":
		fault("SECRET_FILE", "%sSECRET is set, too; keep one of them", w.prefix)
		return
	case w.SecretFile != "":
		content, err := os.ReadFile(w.SecretFile)
		if err != nil {
			fault("SECRET_FILE", "%v", err)
			return
		}
		w.secrets = string(content)
		if secrets = fileSecrets(w.secrets); len(secrets) == 0 {
			fault("SECRET_FILE", "%s has no secret in it; put one on each line", w.SecretFile)
			return
		}
	case set && len(secrets) == 0:
		fault("SECRET", "empty: that would leave the door open; set the provider's secret, or take the variable away")
		return
	case len(secrets) == 0 && w.provider.NeedsSecret && w.Handshake == "open":
		return // the handshake brings it; until then everything is refused
	case len(secrets) == 0 && w.provider.NeedsSecret:
		fault("SECRET", "not set; %s signs with a secret: copy it from the provider's settings, or set %sSECRET_FILE", w.Provider, w.prefix)
		return
	}
	verifier, err := w.newVerifier(secrets)
	switch {
	case err != nil && w.SNSCertFile != "":
		fault("SNS_CERT_FILE", "%v", err)
	case err != nil:
		fault("SECRET", "%v", err)
	default:
		w.verifier.Store(verifier)
	}
}

func (w *WebhookConfig) newVerifier(secrets []string) (*webhook.Verifier, error) {
	if w.SNSCertFile != "" && w.Provider == "aws-sns" { // for networks that cannot fetch it
		certificate, err := os.ReadFile(w.SNSCertFile)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, string(certificate))
	}
	return w.provider.NewVerifier(secrets, webhook.Options{
		Tolerance: w.tolerance,
		HMAC: webhook.HMACOptions{
			Header: w.HMACHeader, Algorithm: w.HMACAlgorithm, Encoding: w.HMACEncoding, Prefix: w.HMACPrefix,
			Signed: w.HMACSigned, TimestampHeader: w.HMACTimestampHeader, IDHeader: w.HMACIDHeader,
		},
		TokenHeader:  w.TokenHeader,
		Certificates: w.certificates,
	})
}

// lines are the secrets of a variable, one a line; a space belongs to the
// secret. A key or certificate in PEM is one, whatever its lines.
func lines(text string) []string {
	var out []string
	inPEM := false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case inPEM:
			out[len(out)-1] += "\n" + line
			inPEM = !strings.HasPrefix(strings.TrimSpace(line), "-----END ")
		case strings.TrimSpace(line) != "":
			out = append(out, line)
			inPEM = strings.HasPrefix(strings.TrimSpace(line), "-----BEGIN ")
		}
	}
	return out
}

// fileSecrets are the secrets of a file, one a line, without the white space
// that editors leave around them.
func fileSecrets(content string) []string {
	out := lines(strings.TrimPrefix(content, "\ufeff")) // some editors begin files with it
	for i, line := range out {
		out[i] = strings.TrimSpace(line)
	}
	return out
}

// reloadSecret reads the secret file anew, and says whether it has changed.
// What is wrong with the new content leaves the old secrets in force.
func (w *WebhookConfig) reloadSecret() (changed bool, err error) {
	content, err := os.ReadFile(w.SecretFile)
	if err != nil {
		return false, err
	}
	if string(content) == w.secrets {
		return false, nil
	}
	secrets := fileSecrets(string(content))
	if len(secrets) == 0 {
		w.secrets = string(content)
		return false, fmt.Errorf("%s has no secret in it", w.SecretFile)
	}
	verifier, err := w.newVerifier(secrets)
	if err != nil {
		return false, err
	}
	w.secrets = string(content)
	w.verifier.Store(verifier)
	return true, nil
}

// entry is the webhook as the proxy knows it.
func (w *WebhookConfig) entry() *proxy.Webhook {
	var notAccepted []string
	for _, mediaType := range strings.Split(w.NotAccepted, ",") {
		if mediaType = strings.TrimSpace(mediaType); mediaType != "" {
			notAccepted = append(notAccepted, mediaType)
		}
	}
	return &proxy.Webhook{
		Name: w.label(), Path: w.Path, Provider: w.provider, Verifier: w.verifier.Load, Key: w.key,
		Namespace: w.scope(), MissingID: proxy.MissingID(w.MissingID), PublicURL: w.PublicURL,
		ReleaseOn: w.releases, NotAccepted: notAccepted,
		DuplicateStatus: w.DuplicateStatus, DuplicateBody: w.DuplicateBody, DuplicateContentType: w.DuplicateContentType,
		InvalidStatus: w.InvalidStatus, Replay: w.Duplicate == "replay", OpenHandshake: w.Handshake == "open", RejectReads: w.Get == "reject",
	}
}

// releases says whether a status of the upstream gives the key back. What is
// no status of HTTP's classes does.
func (w *WebhookConfig) releases(status int) bool {
	class := strconv.Itoa(status/100) + "xx"
	if status < 300 || status > 599 {
		return true
	}
	return slices.Contains(w.releaseOn, class) || slices.Contains(w.releaseOn, strconv.Itoa(status))
}
