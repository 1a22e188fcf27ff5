package webhook

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	_ "crypto/md5" // for crypto.Hash.New, like the others
	"crypto/rsa"
	_ "crypto/sha1"
	_ "crypto/sha256"
	_ "crypto/sha512"
	"crypto/subtle"
	"crypto/x509"
	"hash"
	"net/url"
	"strings"
	"time"
)

// Verifier checks the signatures of one webhook. It is safe for concurrent use.
type Verifier struct {
	scheme       Scheme
	keys         []key
	at, time, id place
	cert         place
	message      []segment
	signsTime    bool // the timestamp is a token of the message
	tolerance    time.Duration
	eventID      []part // where Sign puts an id
	certificates func(url string) (*x509.Certificate, error)
}

// Verify returns nil if one of r's signatures was made with one of the secrets and its signed timestamp, if there is one,
// is within the tolerance of now, both ways. That a delivery is too old or too new is said only if its signature is
// right: of others nobody knows when they were made.
func (v *Verifier) Verify(r *Request, now time.Time) *Failure {
	if v.scheme.algorithm == "none" {
		return nil
	}
	items := []*Request{r}
	if v.scheme.items != nil {
		var f *Failure
		if items, f = v.scheme.items(r); f != nil {
			return f
		}
	}
	for _, item := range items {
		c, f := v.read(item)
		if f != nil {
			return f
		}
		if !v.matches(item, &c) {
			return failf(Mismatch, "the %s is no signature of this request with the configured secret: %s", v.at, v.cause(r))
		}
		if f := v.age(c, item, now); f != nil {
			return f
		}
	}
	return nil
}

// cause is the likely reason of a mismatch.
func (v *Verifier) cause(r *Request) string {
	switch {
	case v.scheme.algorithm == "equal":
		return "the secret here and the one at the provider differ"
	case r.URL == "" && strings.Contains(v.scheme.signed, "{url}"):
		return "this provider signs the URL, so WEBHOOK_PUBLIC_URL must say how it reaches this webhook"
	case strings.Contains(v.scheme.signed, "{url}"):
		return "the secret is another endpoint's, the public URL is not the one that the provider calls, or something in front changed the body"
	}
	return "the secret is another endpoint's, or something in front changed the body"
}

// matches reports whether any signature matches any key, for the request or a form of it that may have been signed.
func (v *Verifier) matches(r *Request, c *claim) bool {
	for i := range v.keys {
		if v.matchesKey(r, c, &v.keys[i]) {
			return true
		}
	}
	if v.scheme.similar == nil {
		return false
	}
	for _, form := range v.scheme.similar(r) {
		for i := range v.keys {
			if v.matchesKey(form, c, &v.keys[i]) {
				return true
			}
		}
	}
	return false
}

func (v *Verifier) matchesKey(r *Request, c *claim, k *key) bool {
	algorithm, public := c.algorithm, k.public
	if k.version == "v1a" {
		algorithm = "ed25519"
	}
	if c.cert != nil {
		public = c.cert.PublicKey
	}
	var sum []byte
	switch algorithm {
	case "equal":
		sum = k.secret
	case "ed25519":
		var message message
		v.write(&message, r, c, k)
		sum = message
	default:
		h := k.hash(algorithm)
		v.write(h, r, c, k)
		sum = h.Sum(make([]byte, 0, 64))
	}
	for _, s := range c.signatures {
		if s.version != k.version {
			continue
		}
		ok := false
		switch algorithm {
		case "ed25519":
			public, isKey := public.(ed25519.PublicKey)
			ok = isKey && ed25519.Verify(public, sum, s.bytes)
		case "ecdsa":
			public, isKey := public.(*ecdsa.PublicKey)
			ok = isKey && ecdsa.VerifyASN1(public, sum, s.bytes)
		case "rsa-sha1", "rsa-sha256":
			public, isKey := public.(*rsa.PublicKey)
			ok = isKey && rsa.VerifyPKCS1v15(public, hashOf(algorithm), sum, s.bytes) == nil
		default:
			ok = subtle.ConstantTimeCompare(sum, s.bytes) == 1
		}
		if ok {
			return true
		}
	}
	return false
}

// message collects what is signed where the algorithm wants it whole.
type message []byte

func (m *message) Write(p []byte) (int, error) {
	*m = append(*m, p...)
	return len(p), nil
}

// hash returns the keyed hash of an HMAC scheme, the plain one of the others.
func (k *key) hash(algorithm string) hash.Hash {
	if strings.HasPrefix(algorithm, "hmac-") {
		return hmac.New(hashOf(algorithm).New, k.secret)
	}
	return hashOf(algorithm).New()
}

func hashOf(algorithm string) crypto.Hash {
	_, name, _ := strings.Cut(algorithm, "-")
	switch name {
	case "sha1":
		return crypto.SHA1
	case "sha512":
		return crypto.SHA512
	case "md5":
		return crypto.MD5
	}
	return crypto.SHA256
}

// signatureSize is the length of an algorithm's signatures in bytes, 0 where it varies.
func signatureSize(algorithm string) int {
	switch {
	case algorithm == "ed25519":
		return ed25519.SignatureSize
	case algorithm == "sha256", strings.HasPrefix(algorithm, "hmac-"):
		return hashOf(algorithm).Size()
	}
	return 0
}

// certificate gets the certificate that the request names, which must be on the provider's own host: else anybody could
// sign with a key of their own.
func (v *Verifier) certificate(r *Request) (*x509.Certificate, *Failure) {
	text, f := v.cert.value(r)
	if f != nil {
		return nil, f
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.User != nil || !v.scheme.certHost(u) {
		return nil, failf(Mismatch, "the %s is not an https address of the provider's: its certificate is not fetched", v.cert)
	}
	if v.keys[0].public != nil {
		return nil, nil // the certificate is configured
	}
	if v.certificates == nil {
		return nil, failf(Mismatch, "the provider's certificate cannot be fetched here: configure the certificate")
	}
	cert, err := v.certificates(text)
	if err != nil {
		return nil, failf(Mismatch, "the provider's certificate could not be had: %v", err)
	}
	return cert, nil
}
