package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/store"
)

func TestEveryCommandHasHelp(t *testing.T) {
	for _, command := range []string{"", "serve", "migrate", "key", "verify", "send", "events", "events list", "events show", "events release",
		"events complete", "events pass", "cleanup", "version"} {
		code, stdout, stderr := commandLine(t, nil, "", command+" --help")
		if code != exitOK || stderr != "" || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%q --help: exit code %d: %s%s", command, code, stdout, stderr)
		}
	}
}

// commandLine runs a command whose arguments have no spaces.
func commandLine(t *testing.T, environ []string, stdin, line string) (code int, stdout, stderr string) {
	t.Helper()
	return command(t, environ, stdin, strings.Fields(line)...)
}

func TestMisuseIsExitCode2AndSaysWhatIsRight(t *testing.T) {
	for line, remedy := range map[string]string{
		"sevre":                    "--help",
		"serve now":                "--help",
		"serve --port 80":          "--help",
		"version --output yaml":    "text or json",
		"events lst":               "--help",
		"events list --state gone": "in_flight, done, held or unknown",
		"events list --limit 0":    "1 or more",
		"events list --limit many": "--help",
		"events show":              "hookonce events list",
		"events release a b":       "hookonce events list",
		"events pass a --force":    "--help",
		"key":                      "--provider is missing",
		"key --provider strype":    "it knows",
		"key --provider stripe --event-id body:x":            "--event-id",
		"key --provider stripe --header X":                   "Name: value",
		"key --provider stripe --url hooks":                  "https://",
		"verify --provider stripe":                           "--secret",
		"verify --provider svix --secret S3CR3T!!":           "--secret",
		"verify --provider stripe --secret-file /nowhere":    "--secret-file",
		"verify --provider token --secret S3CR3T":            "TOKEN_HEADER",
		"verify --provider stripe --secret S3CR3T --at noon": "--help",
		"send":                                  "http://localhost:8080/webhook/stripe",
		"send stripe --provider stripe":         "http://localhost:8080/webhook/stripe",
		"send http://127.0.0.1:1/ --provider x": "it knows",
		"cleanup --output xml":                  "text or json",
	} {
		code, stdout, stderr := commandLine(t, nil, "", line)
		if code != exitMisuse || stdout != "" || !strings.HasPrefix(stderr, "hookonce: ") || !strings.Contains(stderr, remedy) || strings.Contains(stderr, "S3CR3T") {
			t.Errorf("%s: exit code %d: %s%s, want %q", line, code, stdout, stderr, remedy)
		}
	}
}

// fill puts one event of each state into the store.
func fill(t *testing.T, url string) (environ []string) {
	t.Helper()
	environ = []string{"DATABASE_URL=" + url}
	if code, _, stderr := command(t, environ, "", "migrate"); code != exitOK {
		t.Fatal(stderr)
	}
	for _, hold := range []string{"release", "hold"} {
		c, err := loadStoreConfig(append(environ, "ON_UNKNOWN="+hold))
		if err != nil {
			t.Fatal(err)
		}
		db, err := c.open(nil)
		if err != nil {
			t.Fatal(err)
		}
		claim := func(key string, settle func(context.Context, string, store.Token) error) {
			token := store.NewToken()
			if got, err := db.Claim(t.Context(), key, token); err != nil || !got.Won {
				t.Fatalf("%s: %+v, %v", key, got, err)
			}
			if settle == nil {
				return
			}
			if err := settle(t.Context(), key, token); err != nil {
				t.Fatal(err)
			}
		}
		if hold == "hold" {
			claim("held", db.EndLease)
		} else {
			claim("live", nil)
			claim("unknown", db.EndLease)
			claim("done", func(ctx context.Context, key string, token store.Token) error {
				return db.Complete(ctx, key, token, 204)
			})
		}
		db.Close()
	}
	return environ
}

func TestEventsAreListedAndShown(t *testing.T) {
	eachStore(t, func(t *testing.T, url string) {
		environ := fill(t, url)
		states := map[string]string{"live": "in_flight", "unknown": "unknown", "done": "done", "held": "held"}
		list := func(more ...string) (keys []string) {
			code, stdout, stderr := command(t, environ, "", append([]string{"events", "list", "--output", "json"}, more...)...)
			var events []map[string]any
			if err := json.Unmarshal([]byte(stdout), &events); err != nil || code != exitOK {
				t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
			}
			for _, e := range events {
				key := e["key"].(string)
				keys = append(keys, key)
				if e["state"] != states[key] {
					t.Errorf("%s is %v", key, e["state"])
				}
				fields := slices.Sorted(maps.Keys(e))
				if diff := cmp.Diff([]string{"attempts", "completed_at", "first_seen", "key", "lease_until", "prior_outcome", "state", "status"}, fields); diff != "" {
					t.Error(diff)
				}
			}
			slices.Sort(keys)
			return keys
		}
		if diff := cmp.Diff([]string{"done", "held", "live", "unknown"}, list()); diff != "" {
			t.Error(diff)
		}
		for key, state := range states {
			if diff := cmp.Diff([]string{key}, list("--state", state)); diff != "" {
				t.Error(diff)
			}
		}
		if n := len(list("--limit", "2")); n != 2 {
			t.Errorf("--limit 2 lists %d", n)
		}

		code, stdout, _ := commandLine(t, environ, "", "events show done --output json")
		var shown struct {
			Key, State  string
			Attempts    int
			Status      *int
			FirstSeen   time.Time  `json:"first_seen"`
			CompletedAt *time.Time `json:"completed_at"`
			LeaseUntil  *time.Time `json:"lease_until"`
		}
		if err := json.Unmarshal([]byte(stdout), &shown); err != nil || code != exitOK {
			t.Fatal(code, err, stdout)
		}
		if shown.State != "done" || shown.Attempts != 1 || shown.Status == nil || *shown.Status != 204 || shown.CompletedAt == nil || shown.LeaseUntil != nil ||
			time.Since(shown.FirstSeen).Abs() > time.Minute {
			t.Errorf("shown: %s", stdout)
		}
		code, stdout, _ = commandLine(t, environ, "", "events show done")
		if code != exitOK || !strings.Contains(stdout, "KEY") || !strings.Contains(stdout, "204") {
			t.Errorf("%d: %s", code, stdout)
		}
		code, stdout, stderr := commandLine(t, environ, "", "events show nothing --output json")
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "no such key") {
			t.Errorf("no such key: %d %s%s", code, stdout, stderr)
		}
	})
}

func TestNoEventsAreAnEmptyList(t *testing.T) {
	eachStore(t, func(t *testing.T, url string) {
		environ := []string{"DATABASE_URL=" + url}
		remedy := "hookonce migrate"
		if strings.HasPrefix(url, "sqlite:") {
			remedy = "run this where hookonce serves"
		}
		if code, _, stderr := commandLine(t, environ, "", "events list"); code != exitFailed || !strings.Contains(stderr, remedy) {
			t.Errorf("without a table: %d %s", code, stderr)
		}
		commandLine(t, environ, "", "migrate")
		if code, stdout, _ := commandLine(t, environ, "", "events list --output json"); code != exitOK || stdout != "[]\n" {
			t.Errorf("%d %q", code, stdout)
		}
	})
}

func TestPersonDecidesOnEvents(t *testing.T) {
	for _, c := range []struct {
		line  string
		code  int
		state string // of the key afterwards
	}{
		{"events release held", exitOK, "unknown"},
		{"events release unknown", exitOK, "unknown"},
		{"events release live", exitFailed, "in_flight"},
		{"events release live --force", exitOK, "unknown"},
		{"events release done", exitFailed, "done"},
		{"events release done --force", exitOK, "unknown"},
		{"events complete held", exitOK, "done"},
		{"events complete unknown", exitOK, "done"},
		{"events complete live", exitFailed, "in_flight"},
		{"events complete live --force", exitOK, "done"},
		{"events complete done", exitOK, "done"},
		{"events pass done", exitOK, "unknown"},
		{"events pass held", exitFailed, "held"},
		{"events pass live", exitFailed, "in_flight"},
		{"events release nothing", exitFailed, ""},
		{"events complete nothing", exitFailed, ""},
		{"events pass nothing", exitFailed, ""},
	} {
		t.Run(strings.ReplaceAll(c.line, " ", "_"), func(t *testing.T) {
			environ := fill(t, "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
			decide(t, environ, c.line, c.code, c.state)
		})
	}
	eachStore(t, func(t *testing.T, url string) {
		environ := fill(t, url)
		decide(t, environ, "events release held", exitOK, "unknown")
		decide(t, environ, "events complete held", exitOK, "done")
		decide(t, environ, "events pass held", exitOK, "unknown")
	})
}

func decide(t *testing.T, environ []string, line string, code int, state string) {
	t.Helper()
	key := strings.Fields(line)[2]
	got, stdout, stderr := commandLine(t, environ, "", line)
	if got != code || !strings.Contains(stdout+stderr, key) || (got == exitOK) != (stderr == "") {
		t.Errorf("%s: exit code %d: %s%s", line, got, stdout, stderr)
	}
	_, shown, _ := commandLine(t, environ, "", "events show --output json "+key)
	if state != "" && !strings.Contains(shown, fmt.Sprintf(`"state":%q`, state)) {
		t.Errorf("%s: %s, want %s", line, shown, state)
	}
}

func TestPassedEventRunsExactlyOnceMore(t *testing.T) {
	app := newApplication(t, nil)
	environ := serveEnv(app.URL, "sqlite:"+filepath.Join(t.TempDir(), "x.db"))
	s := serveReady(t, environ)
	const body = `{"id":"evt_A"}`
	wantAnswer(t, s.deliver(t, body), http.StatusOK, "forwarded")
	if code, _, stderr := commandLine(t, environ, "", "events pass evt:evt_A"); code != exitOK {
		t.Fatal(stderr)
	}
	wantAnswer(t, s.deliver(t, body), http.StatusOK, "forwarded")
	wantAnswer(t, s.deliver(t, body), http.StatusOK, "duplicate")
	if told := app.seen()[1].header.Get("Hookonce-Prior-Outcome"); told != "done" {
		t.Errorf("told %q", told)
	}
}

func TestKey(t *testing.T) {
	bodyHash := func(body string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(body))) }
	for _, c := range []struct {
		args []string
		body string
		want string
	}{
		{[]string{"--provider", "stripe"}, `{"id":"evt_1"}`, "evt:evt_1"},
		{[]string{"--provider", "stripe"}, `{"type":"x"}`, bodyHash(`{"type":"x"}`)},
		{[]string{"--provider", "stripe"}, ``, ""},
		{[]string{"--provider", "github", "--header", "X-GitHub-Delivery: 7f"}, `{}`, "evt:7f"},
		{[]string{"--provider", "stripe", "--event-id", "json:type+header:X-Shop", "--header", "X-Shop: a:b"}, `{"type":"paid"}`, "evt:"},
		{[]string{"--provider", "stripe", "--event-id", "query:n", "--url", "https://h.example/hook?n=5"}, `{"a":1}`, "evt:5"},
		{[]string{"--provider", "none", "--event-id", "none"}, `{"id":"evt_1"}`, ""},
		{[]string{"--provider", "none", "--event-id", "sha256"}, `{"id":"evt_1"}`, bodyHash(`{"id":"evt_1"}`)},
	} {
		code, stdout, stderr := command(t, nil, c.body, append([]string{"key", "--output", "json"}, c.args...)...)
		var found struct{ Key, From *string }
		if err := json.Unmarshal([]byte(stdout), &found); err != nil || code != exitOK || stderr != "" || found.Key == nil || found.From == nil || *found.From == "" {
			t.Errorf("%v: exit code %d, %v: %s%s", c.args, code, err, stdout, stderr)
			continue
		}
		if *found.Key != c.want && !(c.want == "evt:" && strings.HasPrefix(*found.Key, "evt:")) {
			t.Errorf("%v: key %q, want %q", c.args, *found.Key, c.want)
		}
	}
	if code, stdout, stderr := command(t, nil, `{"id":"evt_1"}`, "key", "--provider", "stripe"); code != exitOK || stdout != "evt:evt_1\n" || stderr == "" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
}

func TestVerify(t *testing.T) {
	const body, at = `{"id":"evt_1"}`, 1700000000
	signature := stripeSignature(body, time.Unix(at, 0))
	hub := func(secret string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		return fmt.Sprintf("X-Hub-Signature-256: sha256=%x", mac.Sum(nil))
	}
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte("old\r\n "+testSecret+" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   string // separated by |
		reason string // "": valid
	}{
		{"valid", "stripe|--at|1700000000|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, ""},
		{"edge of tolerance", "stripe|--at|1700000300|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, ""},
		{"too old", "stripe|--at|1700000301|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, "too_old"},
		{"too new", "stripe|--at|1699999000|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, "too_new"},
		{"now", "stripe|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, "too_old"},
		{"any age", "stripe|--tolerance|0|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, ""},
		{"wider tolerance", "stripe|--at|1700003600|--tolerance|2h|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, ""},
		{"missing", "stripe|--secret|" + testSecret, "missing"},
		{"malformed", "stripe|--secret|" + testSecret + "|--header|Stripe-Signature: nonsense", "malformed"},
		{"other secret", "stripe|--at|1700000000|--secret|S3CR3T|--header|Stripe-Signature: " + signature, "mismatch"},
		{"one of two secrets", "stripe|--at|1700000000|--secret|S3CR3T|--secret|" + testSecret + "|--header|Stripe-Signature: " + signature, ""},
		{"secret file", "stripe|--at|1700000000|--secret-file|" + file + "|--header|Stripe-Signature: " + signature, ""},
		{"github", "github|--secret|" + testSecret + "|--header|" + hub(testSecret), ""},
		{"github, other secret", "github|--secret|" + testSecret + "|--header|" + hub("x"), "mismatch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"verify", "--output", "json", "--provider"}, strings.Split(c.args, "|")...)
			code, stdout, stderr := command(t, nil, body, args...)
			var verdict struct {
				Valid       *bool
				Reason, Key string
			}
			if err := json.Unmarshal([]byte(stdout), &verdict); err != nil || verdict.Valid == nil || stderr != "" {
				t.Fatalf("%v: %s%s", err, stdout, stderr)
			}
			wantCode := exitOK
			if c.reason != "" {
				wantCode = exitFailed
			}
			if code != wantCode || *verdict.Valid != (c.reason == "") || verdict.Reason != c.reason {
				t.Errorf("exit code %d: %s, want %q", code, stdout, c.reason)
			}
			if strings.HasPrefix(c.args, "stripe") && verdict.Key != "evt:evt_1" || strings.Contains(stdout, testSecret) {
				t.Errorf("%s", stdout)
			}
			code, stdout, _ = command(t, nil, body, append([]string{"verify", "--provider"}, strings.Split(c.args, "|")...)...)
			if code != wantCode || !strings.Contains(stdout, c.reason) || !strings.Contains(stdout, "valid") {
				t.Errorf("text: exit code %d: %s", code, stdout)
			}
		})
	}
}

func TestSentDeliveryIsAccepted(t *testing.T) {
	app := newApplication(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("taken")) })
	s := serveReady(t, serveEnv(app.URL, "sqlite:"+filepath.Join(t.TempDir(), "x.db")))
	for _, c := range []struct {
		secret, data string
		code         int
		want         sent
	}{
		{testSecret, `{"id":"evt_A"}`, exitOK, sent{200, "forwarded", "taken"}},
		{testSecret, `{"id":"evt_A"}`, exitOK, sent{200, "duplicate", ""}},
		{"other", `{"id":"evt_B"}`, exitFailed, sent{401, "invalid_signature", ""}},
	} {
		args := []string{"send", s.url + "/hook", "--provider", "stripe", "--secret", c.secret, "--output", "json"}
		code, stdout, stderr := command(t, nil, c.data, args...) // the body on standard input
		var got sent
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != c.code || got != c.want {
			t.Errorf("exit code %d, %v: %s%s, want %+v", code, err, stdout, stderr, c.want)
		}
		code, stdout, _ = command(t, nil, "", "send", s.url+"/hook", "--provider", "stripe", "--secret", c.secret, "--data", c.data)
		if code != c.code || !strings.Contains(stdout, fmt.Sprint(c.want.Status)) {
			t.Errorf("exit code %d: %s", code, stdout)
		}
	}
	if code, _, stderr := commandLine(t, nil, "", "send http://127.0.0.1:1/ --provider none --data {}"); code != exitFailed || stderr == "" {
		t.Errorf("nobody there: %d %s", code, stderr)
	}
}

// What send signs, verification accepts: for every provider that can be signed
// for with a shared secret and no more.
func TestNamedWebhooksTakeWhatSendSigns(t *testing.T) {
	app := newApplication(t, nil)
	secrets := map[string]string{"stripe": "S3CR3T", "github": "S3CR3T", "shopify": "S3CR3T", "slack": "S3CR3T",
		"svix": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "standard-webhooks": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	environ := []string{"LISTEN_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "UPSTREAM_URL=" + app.URL,
		"DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "x.db"), "WEBHOOKS=" + strings.Join(slices.Sorted(maps.Keys(secrets)), ",")}
	for name, secret := range secrets {
		environ = append(environ, variablePrefix(name)+"SECRET="+secret)
	}
	s := serveReady(t, environ)
	for name, secret := range secrets {
		code, stdout, stderr := command(t, nil, "", "send", s.url+"/webhook/"+name, "--provider", name, "--secret", secret,
			"--data", `{"id":"evt_1","event_id":"Ev1"}`, "--id", "msg_1")
		if code != exitOK || !strings.HasPrefix(stdout, "200 forwarded") {
			t.Errorf("%s: exit code %d: %s%s", name, code, stdout, stderr)
		}
	}
	for _, r := range app.seen() {
		if _, key, ok := strings.Cut(r.header.Get("Hookonce-Key"), "/"); !ok || !strings.HasPrefix(key, "evt:") {
			t.Errorf("%s has the key %q", r.target, r.header.Get("Hookonce-Key"))
		}
	}
}

func TestMigrateMayBeRepeated(t *testing.T) {
	eachStore(t, func(t *testing.T, url string) {
		for range 2 {
			code, stdout, stderr := commandLine(t, []string{"DATABASE_URL=" + url}, "", "migrate")
			if code != exitOK || stdout != "processed_events is up to date\n" {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
		}
	})
}

func TestCleanupDeletesWhatIsPastRetention(t *testing.T) {
	eachStore(t, func(t *testing.T, url string) {
		environ := fill(t, url)
		for _, c := range []struct{ retention, want string }{
			{"720h", `{"deleted":0,"unsettled":0}` + "\n"},
			{"1ms", `{"deleted":2,"unsettled":1}` + "\n"}, // neither the live nor the held one
		} {
			var got string
			eventually(t, c.want, func() bool { // a millisecond has to pass
				_, stdout, _ := commandLine(t, append(environ, "RETENTION="+c.retention), "", "cleanup --output json")
				got = stdout
				return got == c.want
			})
		}
		if code, stdout, _ := commandLine(t, environ, "", "cleanup"); code != exitOK || !strings.HasPrefix(stdout, "deleted 0 keys") {
			t.Errorf("%d %s", code, stdout)
		}
	})
}

func TestVersion(t *testing.T) {
	code, stdout, _ := commandLine(t, nil, "", "version --output json")
	var fields map[string]string
	if err := json.Unmarshal([]byte(stdout), &fields); err != nil || code != exitOK {
		t.Fatal(code, err)
	}
	if diff := cmp.Diff([]string{"go", "platform", "version"}, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Error(diff)
	}
	if _, stdout, _ := commandLine(t, nil, "", "version"); !strings.HasPrefix(stdout, "hookonce ") {
		t.Error(stdout)
	}
}

func TestCommandThatLooksMakesNoDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "elsewhere.db")
	for _, line := range []string{"events list", "events show evt:1", "events release evt:1", "cleanup"} {
		code, _, stderr := commandLine(t, []string{"DATABASE_URL=sqlite:" + file}, "", line)
		if code != exitFailed || !strings.Contains(stderr, "there is no database at "+file) {
			t.Errorf("%s: %d %s", line, code, stderr)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatalf("%s made the file", line)
		}
	}
}
