package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// KeyRule says where the id of an event is: a parsed WEBHOOK_EVENT_ID. It is made of parts:
//
//	json:data.id           a string or number in a JSON body (whatever its content type); json:events[].id takes the
//	                       id of each element, all of which must have one; json:[].id where the body is an array
//	header:X-GitHub-Delivery
//	form:MessageSid        a field of a urlencoded or multipart body; form:payload/json:trigger_id looks into JSON in it
//	query:id               a parameter of the request target
//	sha256                 the SHA-256 of the body; sha256:event that of one JSON value in it, as it was sent
//
// Parts joined with + make one id of several: if one part is missing, the id is. Alternatives are separated by |; the
// first that is complete counts. In names, characters with a meaning here (. + | / % and []) are percent-encoded. The
// rule "sha256" alone means that every event is known by its body, "none" that nothing is deduplicated.
type KeyRule struct {
	text         string
	alternatives []alternative
}

type alternative struct {
	text  string
	parts []part
}

// ParseKeyRule parses the syntax of WEBHOOK_EVENT_ID. Its error is a sentence that says what to write instead.
func ParseKeyRule(s string) (KeyRule, error) {
	k := KeyRule{text: strings.TrimSpace(s)}
	if k.None() || k.Body() {
		return k, nil
	}
	for text := range strings.SplitSeq(k.text, "|") {
		a := alternative{text: strings.TrimSpace(text)}
		for p := range strings.SplitSeq(a.text, "+") {
			parsed, err := parsePart(strings.TrimSpace(p))
			if err != nil {
				return KeyRule{}, err
			}
			a.parts = append(a.parts, parsed)
		}
		k.alternatives = append(k.alternatives, a)
	}
	return k, nil
}

// String is the rule as it was written.
func (k KeyRule) String() string { return k.text }

// None reports that no delivery is deduplicated.
func (k KeyRule) None() bool { return k.text == "none" }

// Body reports that events are known by the hash of their body alone: the key of a delivery is its BodyKey, and that it
// has no id is no fault.
func (k KeyRule) Body() bool { return k.text == "sha256" }

// EventID is the id of r's event, as raw bytes: they can be any. ok is false if the request has none.
func (k KeyRule) EventID(r *Request) (id string, ok bool) {
	id, _, ok = k.Find(r)
	return id, ok
}

// Find is EventID that also tells which alternative of the rule gave the id.
func (k KeyRule) Find(r *Request) (id, from string, ok bool) {
	for _, a := range k.alternatives {
		if id, ok := a.eventID(r); ok {
			return id, a.text, true
		}
	}
	return "", "", false
}

// eventID joins the parts so that different parts never make the same id: in all but a lone plain value, the separators
// (and the percent sign that escapes them) are escaped.
func (a alternative) eventID(r *Request) (string, bool) {
	if len(a.parts) == 1 && !a.parts[0].list() {
		return a.parts[0].one(r)
	}
	var id strings.Builder
	for i, p := range a.parts {
		values := p.all(r)
		if len(values) == 0 {
			return "", false
		}
		for j, v := range values {
			if j > 0 {
				id.WriteByte(',')
			} else if i > 0 {
				id.WriteByte('+')
			}
			if strings.ContainsAny(v, "%+,") {
				v = strings.ReplaceAll(v, "%", "%25")
				v = strings.ReplaceAll(v, "+", "%2B")
				v = strings.ReplaceAll(v, ",", "%2C")
			}
			id.WriteString(v)
		}
	}
	return id.String(), true
}

// Nothing reports that a body has nothing in it to tell events apart by: it is empty, white space, {} or [].
func Nothing(body []byte) bool {
	const brackets = "{}[]"
	var seen []byte
	for _, c := range body {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			if seen = append(seen, c); len(seen) > 2 {
				return false
			}
		}
	}
	return len(seen) == 0 || string(seen) == brackets[:2] || string(seen) == brackets[2:]
}

// maxKey is the length in bytes from which on ids and scoped keys are hashed.
const maxKey = 255

// EventKey is the key of an event id: "evt:" and the id, or "evt-sha256:" and its SHA-256 in hex if the id is over 255
// bytes or has something that a text column cannot hold (NUL, invalid UTF-8) or a log line should not (other control
// characters).
func EventKey(id string) string {
	if len(id) <= maxKey && printable(id) {
		return "evt:" + id
	}
	return "evt-sha256:" + hexSHA256([]byte(id))
}

// BodyKey is the key of an event that has no id: "sha256:" and the SHA-256 of its raw body in hex.
func BodyKey(body []byte) string { return "sha256:" + hexSHA256(body) }

// ScopedKey puts a webhook's name, and the rest of the path below its subtree, in front of a key that EventKey or BodyKey
// made: "github/evt:1", "billing/evt:1", "name/a/b/evt:1"; what is empty does not count. A name has no slash. Among
// webhooks that all have a name, or none, no two names, rests or keys give the same scoped key, because it can be read
// back: the name ends at the first slash, and the key begins at the first segment that begins with "evt:", "evt-sha256:" or
// "sha256:" (in a rest the colon of such a segment is escaped). A backslash escapes, also bytes that a text column cannot
// hold. A scoped key of over 255 bytes becomes "key-sha256:" and its hash in hex.
func ScopedKey(name, rest, key string) string {
	if name == "" && rest == "" {
		return key
	}
	if rest != "" {
		key = escapeScope(rest) + "/" + key
	}
	if name != "" {
		key = name + "/" + key
	}
	if len(key) > maxKey {
		return "key-sha256:" + hexSHA256([]byte(key))
	}
	return key
}

func escapeScope(part string) string {
	var out strings.Builder
	segment := 0 // where in part the current segment began
	for i := 0; i < len(part); {
		r, n := utf8.DecodeRuneInString(part[i:])
		switch {
		case r == '\\':
			out.WriteString(`\\`)
		case r == ':' && isKeyPrefix(part[segment:i]):
			out.WriteString(`\:`)
		case r == utf8.RuneError && n == 1, unicode.IsControl(r):
			fmt.Fprintf(&out, `\x%x.`, part[i:i+n])
		default:
			out.WriteString(part[i : i+n])
		}
		i += n
		if r == '/' {
			segment = i
		}
	}
	return out.String()
}

func isKeyPrefix(s string) bool { return s == "evt" || s == "evt-sha256" || s == "sha256" }

func printable(s string) bool {
	for i, r := range s {
		if unicode.IsControl(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			return false
		}
	}
	return true
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
