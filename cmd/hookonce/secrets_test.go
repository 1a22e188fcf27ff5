package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hookonce/hookonce/proxy/webhook"
)

// accepts says whether the webhook takes what was signed with that secret.
func accepts(t *testing.T, w *WebhookConfig, secret string) bool {
	t.Helper()
	r := &webhook.Request{Method: http.MethodPost, Target: "/", Header: http.Header{}, Body: []byte(`{"id":"evt_1"}`)}
	sign(t, r.Header, w.Provider, secret, string(r.Body), time.Now())
	return w.verifier.Load().Verify(r, time.Now()) == nil
}

func TestSecretsOfAVariable(t *testing.T) {
	for _, c := range []struct {
		variable         string
		accepted, others []string
	}{
		{"one", []string{"one"}, []string{"two", "one ", "on"}},
		{" a b ", []string{" a b "}, []string{"a b", " a b", "a", "b"}}, // a space belongs to it
		{"one\ntwo", []string{"one", "two"}, []string{"one\ntwo", "onetwo"}},
		{"one\r\ntwo\r\n", []string{"one", "two"}, []string{"one\r", "two\r"}},
		{"\n one\n \ntwo\n\n", []string{" one", "two"}, []string{"one"}},
		{"one,two", []string{"one,two"}, []string{"one", "two"}},
	} {
		w := mustLoad(t, valid("WEBHOOK_SECRET="+c.variable)).webhooks[0]
		for _, secret := range c.accepted {
			if !accepts(t, w, secret) {
				t.Errorf("%q: %q is refused", c.variable, secret)
			}
		}
		for _, secret := range c.others {
			if accepts(t, w, secret) {
				t.Errorf("%q: %q is accepted", c.variable, secret)
			}
		}
	}
}

func TestSecretsOfAFileAreTrimmed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write(t, file, "  one \r\n\r\n\ttwo words\t\n")
	environ := []string{"UPSTREAM_URL=http://app", "WEBHOOK_PATH=/hook", "WEBHOOK_PROVIDER=stripe", "WEBHOOK_SECRET_FILE=" + file}
	w := mustLoad(t, environ).webhooks[0]
	for _, secret := range []string{"one", "two words"} {
		if !accepts(t, w, secret) {
			t.Errorf("%q is refused", secret)
		}
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mount lays a secret out as Kubernetes does (kubernetes.io, "Secrets",
// mounted secrets are updated): the file is a link into ..data, which is a link
// to a folder that is swapped in one step.
func mount(t *testing.T, dir, version, content string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, version, "secret"), content)
	fresh := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, fresh); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..data", "secret"), filepath.Join(dir, "secret")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

func TestSecretFileIsRotatedWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "..v1", "old\n")
	app := newApplication(t, nil)
	var environ []string
	for _, line := range serveEnv(app.URL, "sqlite:"+filepath.Join(t.TempDir(), "x.db"), "WEBHOOK_SECRET_FILE="+filepath.Join(dir, "secret")) {
		if !strings.HasPrefix(line, "WEBHOOK_SECRET=") {
			environ = append(environ, line)
		}
	}
	s := serveReady(t, environ)
	accepted := func(secret string) bool {
		const body = `{"type":"ping"}`
		r := signed(t, s.url+"/hook", body, time.Now())
		r.Header.Del("Stripe-Signature")
		sign(t, r.Header, "stripe", secret, body, time.Now())
		return do(t, r).status == http.StatusOK
	}
	want := func(secret string, is bool) {
		t.Helper()
		if accepted(secret) != is {
			t.Errorf("%s is accepted: %v", secret, !is)
		}
	}
	want("old", true)
	want("new", false)

	mount(t, dir, "..v2", "new\nold\n")
	eventually(t, "both are accepted", func() bool { return accepted("new") })
	want("old", true)
	mount(t, dir, "..v3", "new\n")
	eventually(t, "the old one is refused", func() bool { return !accepted("old") })
	want("new", true)

	// What is wrong with the new content leaves the old in force, and is said.
	for i, broken := range []string{"\n \n", ""} {
		mount(t, dir, "..b"+string(rune('0'+i)), broken)
		eventually(t, "the fault is said", func() bool { return strings.Count(s.log.String(), "old secrets stay in force") > i })
		want("new", true)
		mount(t, dir, "..g"+string(rune('0'+i)), "new\nnext\n")
		eventually(t, "mended", func() bool { return len(s.log.lines("secrets read anew")) > 2+i })
	}
	want("next", true)
	if err := os.Remove(filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is said", func() bool { return strings.Contains(s.log.String(), "no such file") })
	want("new", true)
	if log := s.log.String(); strings.Contains(log, `"next"`) || strings.Contains(log, "next\\n") {
		t.Errorf("the log shows a secret: %s", log)
	}
}
