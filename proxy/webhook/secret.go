package webhook

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"strings"
)

// key is a parsed secret.
type key struct {
	text    string // as it was given
	secret  []byte // of HMAC and comparison
	public  crypto.PublicKey
	private crypto.Signer // for Sign, if a private key was given
	version string        // of the signatures that it makes, where a header carries several versions
}

// NewVerifier parses and checks the secrets, once. Its error is a sentence that says what is wrong with which of them,
// never what they are. White space belongs to a secret: whoever reads it from a file trims it.
func (p Provider) NewVerifier(secrets []string, o Options) (*Verifier, error) {
	v := &Verifier{scheme: p.Scheme, tolerance: o.Tolerance, certificates: o.Certificates}
	s := &v.scheme
	switch p.Name {
	case "hmac":
		if err := o.HMAC.apply(s); err != nil {
			return nil, err
		}
	case "token":
		if o.TokenHeader == "" {
			return nil, errors.New("provider token needs the name of the header that has the token (WEBHOOK_TOKEN_HEADER)")
		}
		s.at = "header:" + o.TokenHeader
	}
	if s.algorithm == "none" {
		if len(secrets) > 0 {
			return nil, fmt.Errorf("provider %s verifies nothing, so a secret would protect nothing: leave it out or choose another provider", p.Name)
		}
		return v, nil
	}
	var pinned []key // certificates that the operator gives in place of those to be fetched
	for i, secret := range secrets {
		keys, err := parseSecret(s, secret)
		switch {
		case err != nil:
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		case s.cert != "" && keys[0].public != nil:
			pinned = append(pinned, keys...)
		default:
			v.keys = append(v.keys, keys...)
		}
	}
	if len(v.keys) == 0 {
		if p.NeedsSecret {
			return nil, fmt.Errorf("provider %s needs a secret: an empty one would let everybody in", p.Name)
		}
		v.keys = []key{{version: s.list.version}}
	}
	if len(pinned) > 0 {
		v.keys = withCertificates(v.keys, pinned)
	}
	rule, ruleErr := ParseKeyRule(cmp.Or(p.EventID, "none"))
	if len(rule.alternatives) > 0 {
		v.eventID = rule.alternatives[0].parts
	}
	var err [6]error
	err[5] = ruleErr
	v.at, err[0] = parsePlace(s.at)
	v.time, err[1] = parsePlace(s.time)
	v.id, err[2] = parsePlace(s.id)
	v.cert, err[3] = parsePlace(s.cert)
	v.message, err[4] = s.template()
	v.signsTime = strings.Contains(s.signed, "{timestamp}")
	return v, errors.Join(err[:]...)
}

func withCertificates(keys, certificates []key) (all []key) {
	for _, k := range keys {
		for _, c := range certificates {
			k.public, k.private = c.public, c.private
			all = append(all, k)
		}
	}
	return all
}

func parseSecret(s *Scheme, secret string) (keys []key, err error) {
	k := key{text: secret, version: s.list.version}
	if strings.TrimSpace(secret) == "" {
		return nil, errors.New("it is empty, and would let everybody in")
	}
	if s.cert != "" && (strings.Contains(secret, "-----BEGIN") || !strings.Contains(s.signed, "{secret}")) {
		// not a secret but the certificate, for networks that cannot fetch it
		k.public, k.private, err = parseKey("rsa", secret)
		return []key{k}, err
	}
	switch s.keys {
	case "hex":
		k.secret, err = hex.DecodeString(secret)
		if err != nil {
			err = errors.New("it must be hexadecimal")
		}
	case "whsec", "openai":
		return parseWhsec(k, s.keys == "openai")
	case "html": // kept HTML-escaped in the shop, unescaped before it signs; both may have been copied
		k.secret = []byte(html.UnescapeString(secret))
		keys = append(keys, k)
		if string(k.secret) == secret {
			return keys, nil
		}
		k.secret = []byte(secret)
	case "login":
		k.secret = []byte(secret)
		if user, password, ok := strings.Cut(secret, ":"); !ok || user == "" && password == "" {
			err = errors.New("it must be a user name and a password joined with a colon")
		}
	case "ed25519-hex", "ed25519-base64", "ecdsa":
		k.public, k.private, err = parseKey(s.keys, secret)
	default:
		k.secret = []byte(secret)
		if s.keyLength > 0 && len(secret) != s.keyLength {
			err = fmt.Errorf("it must have %d characters", s.keyLength)
		}
	}
	return append(keys, k), err
}

// parseWhsec parses the secrets of Standard Webhooks: whsec_ and base64 (also with the version in front, or bare), or
// whpk_ and an Ed25519 public key. The specification wants 24 to 64 bytes; shorter keys are in use and accepted.
func parseWhsec(k key, openAI bool) ([]key, error) {
	text := strings.TrimPrefix(k.text, "v1,")
	if public, ok := strings.CutPrefix(strings.TrimPrefix(text, "v1a,"), "whpk_"); ok {
		k.version = "v1a"
		var err error
		k.public, k.private, err = parseKey("ed25519-base64", public)
		return []key{k}, err
	}
	if private, ok := strings.CutPrefix(text, "whsk_"); ok {
		k.version = "v1a"
		var err error
		k.public, k.private, err = parseKey("ed25519-base64", private)
		return []key{k}, err
	}
	encoded, prefixed := strings.CutPrefix(text, "whsec_")
	if openAI && !prefixed { // openai-node takes a secret without the prefix as it stands
		k.secret = []byte(text)
		return []key{k}, nil
	}
	var err error
	if k.secret, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "=")); err != nil || len(k.secret) == 0 {
		return nil, errors.New("it must be whsec_ and base64, as the provider shows it")
	}
	return []key{k}, nil
}

// parseKey parses a public key, or a private one (which Sign needs): Ed25519 as 32 bytes (a public key or, when signing,
// a seed) or 64 (seed and public key), the others and certificates as DER in base64, all of them as PEM.
func parseKey(kind, text string) (public crypto.PublicKey, private crypto.Signer, err error) {
	var der []byte
	encoding := "base64"
	block, _ := pem.Decode([]byte(text))
	switch {
	case block != nil:
		der = block.Bytes
	case strings.Contains(text, "-----BEGIN"):
		return nil, nil, errors.New("its PEM block cannot be read: it must be whole, line breaks included")
	case kind == "ed25519-hex":
		encoding = "hexadecimal"
		der, err = hex.DecodeString(text)
	default:
		der, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("it must be the provider's public key or certificate, in %s or PEM", encoding)
	}
	switch {
	case block != nil || kind == "ecdsa" || kind == "rsa":
		public, private, err = parseDER(der)
	case len(der) == ed25519.PublicKeySize:
		public, private = ed25519.PublicKey(der), ed25519.NewKeyFromSeed(der)
	case len(der) == ed25519.PrivateKeySize:
		private = ed25519.NewKeyFromSeed(der[:ed25519.SeedSize])
		public = private.Public()
	default:
		err = fmt.Errorf("it has %d bytes where an Ed25519 public key has %d", len(der), ed25519.PublicKeySize)
	}
	if err != nil {
		return nil, nil, err
	}
	ok := false
	switch kind {
	case "rsa":
		_, ok = public.(*rsa.PublicKey)
	case "ecdsa":
		_, ok = public.(*ecdsa.PublicKey)
	default:
		_, ok = public.(ed25519.PublicKey)
	}
	if !ok {
		return nil, nil, errors.New("it is a key of another kind than this provider uses")
	}
	return public, private, nil
}

func parseDER(der []byte) (crypto.PublicKey, crypto.Signer, error) {
	if cert, err := x509.ParseCertificate(der); err == nil {
		return cert.PublicKey, nil, nil
	}
	if public, err := x509.ParsePKIXPublicKey(der); err == nil {
		return public, nil, nil
	}
	if private, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		if signer, ok := private.(crypto.Signer); ok {
			return signer.Public(), signer, nil
		}
	}
	return nil, nil, errors.New("it must be a certificate, a public key or (for signing) a PKCS 8 private key")
}
