package webhook

import "time"

// payments are the providers of payments, invoices and subscriptions.
func payments() []Provider {
	return []Provider{
		{Name: "stripe", Scheme: timedHMAC("Stripe-Signature"), EventID: "json:id", Tolerance: fiveMinutes, RetryWindow: 72 * time.Hour,
			Special: "the secret is the whole text, `whsec_` included", Evidence: evidence(inSource, inDocs)},
	}
}
