package webhook

import "time"

// code are the providers of source code, builds and operations.
func code() []Provider {
	return []Provider{
		{Name: "github", Scheme: bodyHMAC("X-Hub-Signature-256", "hex", "sha256="), EventID: "header:X-GitHub-Delivery",
			Waits: 10 * time.Second, NoRetry: true,
			Special: "never retries by itself: a failed delivery must be redelivered by hand or through its API, with the same id", Evidence: evidence(inSource, inDocs)},
	}
}
