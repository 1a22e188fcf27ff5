package webhook

import "time"

// shops are the providers of shops, content and forms.
func shops() []Provider {
	const hour = time.Hour
	shopify := bodyHMAC("X-Shopify-Hmac-Sha256", "base64", "")
	shopify.at += "|header:Shopify-Hmac-Sha256"
	woo := bodyHMAC("X-WC-Webhook-Signature", "base64", "")
	woo.keys = "html"
	sanity := timedHMAC("Sanity-Webhook-Signature")
	sanity.encoding, sanity.unit = "base64url", "ms"
	return []Provider{
		{Name: "shopify", Scheme: shopify, EventID: "header:X-Shopify-Webhook-Id|header:Shopify-Webhook-Id", Waits: 5 * time.Second, RetryWindow: 4 * hour,
			Special: "also the newer Events, whose headers lack the `X-`; test notifications from the shop's settings are signed with another key", Evidence: inSource},
		{Name: "woocommerce", Scheme: woo, EventID: "header:X-WC-Webhook-Delivery-ID+sha256", Waits: 60 * time.Second, NoRetry: true,
			Special: "the delivery id alone is shared by events of one second; never retries; its unsigned ping is answered", Evidence: inSource,
			handshakes: []handshake{{AnsweredHandshake, wooPing()}}},
		{Name: "contentful", Scheme: contentful(), EventID: "header:X-Contentful-Idempotency-Key+sha256", MissingID: "forward", Tolerance: 30 * time.Second,
			Special: "signs method, path and listed headers too", Evidence: evidence(inSource, inDocs)},
		{Name: "sanity", Scheme: sanity, EventID: "header:Idempotency-Key", MissingID: "forward", RetryWindow: time.Minute,
			Special: "projections can make bodies equal, so there is no key without the header", Evidence: evidence(inSource, unconfirmed)},
		{Name: "typeform", Scheme: bodyHMAC("Typeform-Signature", "base64", "sha256="), EventID: "json:event_id", Waits: 30 * time.Second, Evidence: thirdParty},
		{Name: "calendly", Scheme: timedHMAC("Calendly-Webhook-Signature"), EventID: "json:event+json:payload.uri+json:created_at", Tolerance: 3 * time.Minute, RetryWindow: 24 * hour,
			Evidence: evidence(thirdParty, unconfirmed)},
	}
}
