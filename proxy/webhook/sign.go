package webhook

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sign adds to r what the provider would send: the signature made with the first secret, the time now, and id where the
// provider has a header (or signed field) for it. Most providers put these into headers; a few into the body or the
// query, which are replaced then. Schemes with public keys sign only if the secret is the private key. Sign is for
// trying hookonce out and for tests.
func (v *Verifier) Sign(r *Request, id string, now time.Time) error {
	s := &v.scheme
	if s.algorithm == "none" {
		return nil
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if len(v.eventID) > 0 && id != "" && v.eventID[0].source == "header" && r.Header.Get(v.eventID[0].name) == "" {
		r.Header.Set(v.eventID[0].name, id)
	}
	if s.prepare != nil {
		if err := s.prepare(r, id, now); err != nil {
			return err
		}
	}
	if s.items == nil {
		return v.signOne(r, id, now)
	}
	items, f := s.items(r)
	if f != nil {
		return fmt.Errorf("the body cannot be signed: %s", f.Detail)
	}
	whole := cap(r.Body)
	for i := len(items) - 1; i >= 0; i-- { // from behind, so that the places of the others stay
		at := whole - cap(items[i].Body)
		head, tail := r.Body[:at], r.Body[at+len(items[i].Body):]
		if err := v.signOne(items[i], id, now); err != nil {
			return err
		}
		r.Body = slices.Concat(head, items[i].Body, tail)
	}
	return nil
}

func (v *Verifier) signOne(r *Request, id string, now time.Time) error {
	s := &v.scheme
	c := claim{algorithm: s.algorithm, id: id}
	switch s.unit {
	case "ms":
		c.time = strconv.FormatInt(now.UnixMilli(), 10)
	case "rfc3339":
		c.time = now.UTC().Format("2006-01-02T15:04:05.000000000Z")
	default:
		c.time = strconv.FormatInt(now.Unix(), 10)
	}
	if s.time != "" {
		v.time.set(r, c.time)
	}
	if s.id != "" {
		if present, f := v.id.value(r); f == nil && id == "" {
			c.id = present
		} else if id == "" {
			return fmt.Errorf("the %s is signed too: an id must be given", v.id)
		} else {
			v.id.set(r, id)
		}
	}
	if s.choose != nil {
		var f *Failure
		if c.algorithm, f = s.choose(r); f != nil {
			return f
		}
	}
	k := &v.keys[0]
	var sum []byte
	var err error
	switch {
	case c.algorithm == "equal":
		sum = k.secret
	case signatureSize(c.algorithm) > 0 && c.algorithm != "ed25519" && k.version != "v1a":
		h := k.hash(c.algorithm)
		v.write(h, r, &c, k)
		sum = h.Sum(nil)
	case k.private == nil:
		return errors.New("this provider signs with a private key, and none was given in place of the public one")
	case c.algorithm == "ed25519" || k.version == "v1a":
		var m message
		v.write(&m, r, &c, k)
		sum, err = k.private.Sign(rand.Reader, m, crypto.Hash(0))
	default:
		h := hashOf(c.algorithm).New()
		v.write(h, r, &c, k)
		sum, err = k.private.Sign(rand.Reader, h.Sum(nil), hashOf(c.algorithm))
	}
	if err != nil {
		return err
	}
	text := s.prefix
	switch s.encoding {
	case "hex":
		text += hex.EncodeToString(sum)
	case "base64":
		text += base64.StdEncoding.EncodeToString(sum)
	case "base64url":
		text += base64.RawURLEncoding.EncodeToString(sum)
	default:
		text += string(sum)
	}
	if s.list.between != "" {
		text = k.version + s.list.is + text
		if s.list.time != "" {
			text = s.list.time + s.list.is + c.time + s.list.between + text
		}
	}
	v.at.set(r, text)
	return nil
}

// set writes a value at the first of p's parts that is in the request already or fits the kind of its body.
func (p place) set(r *Request, value string) {
	at := p[0]
	for _, other := range p {
		if _, f := (place{other}).value(r); f == nil || other.source == "form" && isForm(r) && at.source != "form" {
			at = other
			break
		}
	}
	text, _ := json.Marshal(value)
	switch at.source {
	case "header":
		r.Header.Set(at.name, value)
	case "json":
		r.Body = setMember(r.Body, at.path, string(text))
	case "form":
		fields := url.Values{}
		if isForm(r) {
			fields, _ = url.ParseQuery(string(r.Body))
		} else if at.path != nil { // a JSON body becomes the field
			fields.Set(at.name, string(r.Body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if at.path != nil {
			value = string(setMember([]byte(fields.Get(at.name)), at.path, string(text)))
		}
		fields.Set(at.name, value)
		r.Body = []byte(fields.Encode())
	}
}

func isForm(r *Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/x-www-form-urlencoded")
}

// setMember sets a member of a JSON object; what is no object is replaced by one.
func setMember(doc []byte, path []step, value string) []byte {
	doc = bytes.TrimSpace(doc)
	if len(doc) < 2 || doc[0] != '{' || doc[len(doc)-1] != '}' {
		doc = []byte("{}")
	}
	found, _ := find(doc, path[:1])
	old := []byte(nil)
	if len(found) == 1 {
		old = found[0].text
	}
	if len(path) > 1 {
		value = string(setMember(old, path[1:], value))
	}
	if len(found) == 1 && found[0].kind == '{' {
		at := cap(doc) - cap(old)
		return slices.Concat(doc[:at], []byte(value), doc[at+len(old):])
	}
	name, _ := json.Marshal(path[0].name)
	comma := ","
	if Nothing(doc) {
		comma = ""
	}
	return slices.Concat(bytes.TrimSpace(doc[:len(doc)-1]), []byte(comma+string(name)+":"+value+"}"))
}
