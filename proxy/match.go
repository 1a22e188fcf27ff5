package proxy

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// splitTarget splits a request target as it came over the wire into its raw
// path and its raw query. An absolute-form target loses scheme and host, and so
// does what some parsers take for one (http:/path).
func splitTarget(target string) (rawPath, rawQuery string) {
	rawPath, rawQuery, _ = strings.Cut(target, "?")
	if strings.HasPrefix(rawPath, "/") {
		return rawPath, rawQuery
	}
	if _, rest, ok := strings.Cut(rawPath, ":"); ok {
		rawPath = rest
		if afterScheme, ok := strings.CutPrefix(rest, "//"); ok {
			_, rawPath, _ = strings.Cut(afterScheme, "/")
			rawPath = "/" + rawPath
		}
	}
	return rawPath, rawQuery
}

// fold brings every spelling of a path that some application may take for
// another one to a single form: without what looks like a fragment (Node's
// parsers cut it off), percent-decoded (until nothing is left to decode),
// backslashes as slashes, dot segments and repeated slashes resolved, no
// trailing slash, no matrix parameters, lower case.
func fold(rawPath string) string {
	p, _, _ := strings.Cut(rawPath, "#")
	for range 4 { // nobody decodes more often
		decoded, err := url.PathUnescape(p)
		if err != nil || decoded == p {
			break
		}
		p = decoded
	}
	p = strings.ReplaceAll(p, `\`, "/")
	if strings.Contains(p, ";") {
		segments := strings.Split(p, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		p = strings.Join(segments, "/")
	}
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return strings.ToLower(path.Clean(p))
}

// withoutAuthority is a path as those applications see it that resolve the
// target against a base URL: what follows two slashes is a host to them.
func withoutAuthority(rawPath string) string {
	p := strings.ReplaceAll(rawPath, `\`, "/")
	if !strings.HasPrefix(p, "//") {
		return rawPath
	}
	_, rest, _ := strings.Cut(strings.TrimLeft(p, "/"), "/")
	return "/" + rest
}

// matches says whether a raw path is this webhook's, and what a subtree has
// left of it.
func (w *Webhook) matches(rawPath string) (rest string, ok bool) {
	if !w.subtree() {
		return "", rawPath == w.Path
	}
	return strings.CutPrefix(rawPath, w.Path)
}

func (w *Webhook) subtree() bool { return strings.HasSuffix(w.Path, "/") }

// match finds the webhook of a request: the longest path that fits, as in
// net/http. A path that is no webhook's, but which an application may take for
// one (another spelling), gets that webhook and misspelt, because it must not
// get around verification; below a subtree only one spelling is accepted,
// because another one would be another key for the same event.
func (h *Handler) match(r *http.Request) (hook *Webhook, rest string, misspelt bool) {
	rawPath, _ := splitTarget(r.RequestURI)
	for _, w := range h.Webhooks {
		if left, ok := w.matches(rawPath); ok && (hook == nil || len(w.Path) > len(hook.Path)) {
			hook, rest = w, left
		}
	}
	if hook != nil && !hook.subtree() {
		return hook, "", false
	}
	folded := fold(rawPath)
	alternative := folded
	if after := withoutAuthority(rawPath); after != rawPath {
		alternative = fold(after)
	}
	for _, w := range h.Webhooks {
		if w != hook && (w.covers(folded) || w.covers(alternative)) && (hook == nil || len(w.Path) > len(hook.Path)) {
			return w, "", true
		}
	}
	if hook == nil {
		return nil, "", false
	}
	return hook, rest, !canonical(rest) || !hook.covers(folded)
}

// covers says whether a folded path is this webhook's, or that of its subtree.
func (w *Webhook) covers(folded string) bool {
	own := w.folded
	if folded == own {
		return true
	}
	return w.subtree() && (own == "/" || strings.HasPrefix(folded, own+"/"))
}

// canonical says whether the rest of a path below a subtree is spelt in the
// one way that is accepted: no empty or dot segment and no trailing slash, no
// byte that a path cannot carry as it is (RFC 3986, section 3.3), and nothing
// percent-encoded that need not be (section 6.2.2: unreserved characters).
func canonical(rest string) bool {
	if rest == "" {
		return true
	}
	for segment := range strings.SplitSeq(rest, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." || strings.Contains(plain, `\`) ||
			segment == "" {
			return false
		}
	}
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '%':
			encoded, _ := url.PathUnescape(rest[i : i+3]) // is valid, see above
			if unreserved(encoded[0]) || strings.ToUpper(rest[i:i+3]) != rest[i:i+3] {
				return false
			}
			i += 2
		case !unreserved(c) && strings.IndexByte("/!$&'()*+,;=:@", c) < 0:
			return false
		}
	}
	return true
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
