package webhook

import (
	"fmt"
	"strings"
	"time"
)

// ProviderTable is the table of all presets for the README, in Markdown.
func ProviderTable() string {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`, "\n", `\n`)
	b.WriteString("| provider | what is verified | what the key is | special | how sure |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range Providers() {
		special := p.Special
		if p.Replay {
			special = strings.TrimPrefix(special+"; a duplicate gets the first answer again", "; ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", p.Name, cell.Replace(p.describeVerification()), cell.Replace(p.KeyNote), special, p.Evidence)
	}
	return b.String()
}

func (p Provider) describeVerification() string {
	text := p.Verifies
	if p.Tolerance > 0 {
		text += fmt.Sprintf(", at most %d s old or ahead", int(p.Tolerance/time.Second))
	}
	if p.NeedsURL {
		text += "; needs `WEBHOOK_PUBLIC_URL`"
	}
	return text
}

// describe puts a scheme into words.
func (s *Scheme) describe() string {
	at := "`" + strings.NewReplacer("header:", "", "json:", "", "form:", "", "|", "` or `").Replace(s.at) + "`"
	name := strings.Replace(strings.ToUpper(s.algorithm), "SHA", "SHA-", 1)
	switch s.algorithm {
	case "equal":
		if s.keys == "login" {
			return "Basic auth (secret: `user:password`)"
		}
		return "a shared secret in " + at
	case "ed25519":
		name = "Ed25519"
	case "sha256":
		name = "SHA-256 (no HMAC)"
	}
	return fmt.Sprintf("%s of `%s` in %s", name, s.signed, at)
}

// describeKey puts a key rule into words.
func (p Provider) describeKey() string {
	missing := "the body's hash"
	if p.MissingID == "forward" {
		missing = "none: forwarded unclaimed"
	}
	if p.EventID == "" {
		return missing
	}
	return "`" + strings.ReplaceAll(p.EventID, "|", "` or `") + "`, else " + missing
}
