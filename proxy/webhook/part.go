package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
)

// part is one place in a request where a value can be: the currency of key rules and of signature schemes alike.
type part struct {
	text   string // as it was written
	source string // json, header, form, query, sha256
	name   string // of the header, field or parameter
	path   []step // into the JSON body, or into the JSON inside the field
}

func parsePart(s string) (part, error) {
	source, name, named := strings.Cut(s, ":")
	p := part{text: s, source: source}
	var err error
	switch source {
	case "sha256":
		if named {
			p.path, err = parsePath(name)
		}
		return p, err
	case "json":
		p.path, err = parsePath(name)
		return p, err
	case "form":
		var inner string
		var nested bool
		if name, inner, nested = strings.Cut(name, "/json:"); nested {
			if p.path, err = parsePath(inner); err != nil {
				return part{}, err
			}
		}
	case "header", "query":
	case "":
		return part{}, errors.New("a part of the event id's rule is empty: write json:id, header:Name, form:name, query:name or sha256, joined with +")
	default:
		return part{}, fmt.Errorf("%q is no place where an event id can be: write json:id, header:Name, form:name, query:name, sha256 or none", s)
	}
	if p.name, err = url.PathUnescape(name); err != nil || p.name == "" {
		return part{}, fmt.Errorf("%q lacks the name of what is to be read: write it after the colon (special characters percent-encoded)", s)
	}
	if source == "header" {
		for _, c := range []byte(p.name) {
			if c <= ' ' || c >= 0x7F || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
				return part{}, fmt.Errorf("%q names no header: a header's name has letters, digits and hyphens", s)
			}
		}
		p.name = http.CanonicalHeaderKey(p.name)
	}
	return p, nil
}

func parsePath(s string) ([]step, error) {
	var path []step
	for i, c := range strings.Split(s, ".") {
		name := strings.TrimRight(c, "[]")
		brackets := c[len(name):]
		if strings.ReplaceAll(brackets, "[]", "") != "" {
			return nil, fmt.Errorf("%q is no path into JSON: [] stands for every element of an array, one element cannot be named", s)
		}
		unescaped, err := url.PathUnescape(name)
		if err != nil || name == "" && (i > 0 || brackets == "") || strings.ContainsAny(name, "[]/:") {
			return nil, fmt.Errorf("%q is no path into JSON: write member names joined with dots (special characters percent-encoded), as in data.id or events[].id", s)
		}
		if name != "" {
			path = append(path, step{name: unescaped})
		}
		for range len(brackets) / 2 {
			path = append(path, step{each: true})
		}
	}
	if len(path) > maxSteps {
		return nil, fmt.Errorf("%q is too deep: at most %d steps lead to an event id", s, maxSteps)
	}
	return path, nil
}

// list reports whether the part can have several values.
func (p part) list() bool {
	for _, s := range p.path {
		if s.each {
			return true
		}
	}
	return false
}

// one is the part's value where it has exactly one.
func (p part) one(r *Request) (string, bool) {
	if p.source == "header" && len(r.Header[p.name]) == 1 { // the usual case, without allocating
		v := strings.TrimSpace(r.Header[p.name][0])
		return v, v != ""
	}
	if p.source == "json" && !p.list() { // and without a list of one
		found, valid := find(r.Body, p.path)
		if !valid || len(found) != 1 {
			return "", false
		}
		return found[0].id()
	}
	if values := p.all(r); len(values) == 1 {
		return values[0], true
	}
	return "", false
}

// all is the values of the part, none if it is missing or one of its values is unusable: empty, or in JSON neither a
// string nor a number. Outside of JSON a value that comes several times counts once, different ones are no value.
func (p part) all(r *Request) []string {
	var values []string
	switch p.source {
	case "json":
		return ids(r.Body, p.path)
	case "sha256":
		doc := r.Body
		if p.path != nil {
			found, valid := find(r.Body, p.path)
			if !valid || len(found) != 1 || found[0].kind == 0 {
				return nil
			}
			doc = found[0].text
		}
		return []string{hexSHA256(doc)}
	case "header":
		for _, v := range r.Header[p.name] {
			values = append(values, strings.TrimSpace(v))
		}
	case "form":
		values = formValues(r, p.name)
	case "query":
		values = pairs([]byte(r.RawQuery()), p.name)
	}
	if len(values) == 0 || values[0] == "" {
		return nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return nil
		}
	}
	if p.path != nil {
		return ids([]byte(values[0]), p.path)
	}
	return values[:1]
}

func ids(doc []byte, path []step) []string {
	found, valid := find(doc, path)
	if !valid {
		return nil
	}
	values := make([]string, 0, len(found))
	for _, v := range found {
		id, ok := v.id()
		if !ok {
			return nil
		}
		values = append(values, id)
	}
	return values
}

// id is the value as an id: a string that is not empty, or a number's digits as they stand.
func (v jsonValue) id() (string, bool) {
	switch v.kind {
	case '"':
		return unescape(v.text), len(v.text) > 0
	case '0':
		return string(v.text), true
	}
	return "", false
}

// maxFormField bounds what is read of one field of a multipart body.
const maxFormField = 1 << 20

// formValues are the values of one field of a urlencoded or multipart body; only these content types have fields.
func formValues(r *Request, name string) []string {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "application/x-www-form-urlencoded":
		return pairs(r.Body, name)
	case err != nil || kind != "multipart/form-data" || params["boundary"] == "":
		return nil
	}
	var values []string
	form := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
	for {
		field, err := form.NextRawPart()
		if err != nil {
			if err != io.EOF {
				return nil
			}
			return values
		}
		if field.FormName() == name {
			v, err := io.ReadAll(io.LimitReader(field, maxFormField+1))
			if err != nil || len(v) > maxFormField {
				return nil
			}
			values = append(values, string(v))
		}
	}
}

// pairs are the decoded values of name in urlencoded text, which is not copied: it may be a body of any size.
func pairs(encoded []byte, name string) []string {
	var values []string
	for pair := range bytes.SplitSeq(encoded, []byte("&")) {
		key, value, _ := bytes.Cut(pair, []byte("="))
		if len(key) == 0 || len(key) > 3*len(name) { // longer than the name with every byte escaped
			continue
		}
		if k, err := url.QueryUnescape(string(key)); err != nil || k != name {
			continue
		}
		v, err := url.QueryUnescape(string(value))
		if err != nil {
			v = string(value) // not encoded after all: as it stands it is still its own id
		}
		values = append(values, v)
	}
	return values
}
