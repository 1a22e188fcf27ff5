package webhook

import (
	"regexp"
)

// Handshake is what kind of request a delivery is.
type Handshake int

const (
	// NoHandshake is an event.
	NoHandshake Handshake = iota
	// SignedHandshake is verified like an event, and then goes to the application unclaimed: it must answer each one.
	SignedHandshake
	// OpenHandshake comes without a signature, because it brings the secret. It is recognised by its exact shape, before
	// verification, and goes to the application only where the operator allows it.
	OpenHandshake
	// AnsweredHandshake comes without a signature and wants a bare 200.
	AnsweredHandshake
)

// handshake is a kind of request and how to recognise it.
type handshake struct {
	kind  Handshake
	match func(*Request) bool
}

// Handshake tells what kind of request r is. An OpenHandshake or AnsweredHandshake is to be asked for before
// verification, a SignedHandshake counts only after it.
func (p Provider) Handshake(r *Request) Handshake {
	for _, h := range p.handshakes {
		if h.match(r) {
			return h.kind
		}
	}
	return NoHandshake
}

// jsonIs matches bodies whose JSON member has one of the values.
func jsonIs(path string, values ...string) func(*Request) bool {
	return placeIs("json:"+path, values...)
}

// headerIs matches requests whose header has one of the values.
func headerIs(name string, values ...string) func(*Request) bool {
	return placeIs("header:"+name, values...)
}

func placeIs(at string, values ...string) func(*Request) bool {
	p, err := parsePart(at)
	return func(r *Request) bool {
		v, ok := p.one(r)
		for _, want := range values {
			if ok && err == nil && v == want {
				return true
			}
		}
		return false
	}
}

// emptyArray matches bodies whose JSON member is an array without elements.
func emptyArray(name string) func(*Request) bool {
	return func(r *Request) bool {
		found, valid := find(r.Body, []step{{name: name}})
		return valid && len(found) == 1 && found[0].kind == '[' && Nothing(found[0].text)
	}
}

// asanaSecret matches the request with which Asana, during the call that creates a webhook, hands over its secret.
func asanaSecret(r *Request) bool {
	return r.Method == "POST" && len(r.Header["X-Hook-Secret"]) == 1 && r.Header["X-Hook-Secret"][0] != "" && r.Header["X-Hook-Signature"] == nil && Nothing(r.Body)
}

// notionToken matches the request that brings Notion's verification token: an object with this member alone.
func notionToken() func(*Request) bool {
	shape := regexp.MustCompile(`^\s*{\s*"verification_token"\s*:\s*"[^"\\]+"\s*}\s*$`)
	return func(r *Request) bool { return r.Method == "POST" && len(r.Body) < 1<<10 && shape.Match(r.Body) }
}

// wooPing matches the ping with which WooCommerce tries a new webhook.
func wooPing() func(*Request) bool {
	shape := regexp.MustCompile(`^webhook_id=[0-9]{1,20}$`)
	return func(r *Request) bool {
		return r.Method == "POST" && r.Header["X-Wc-Webhook-Signature"] == nil && isForm(r) && shape.Match(r.Body)
	}
}
