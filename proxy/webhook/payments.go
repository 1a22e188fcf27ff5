package webhook

import "time"

// payments are the providers of payments, invoices and subscriptions.
func payments() []Provider {
	const hour = time.Hour
	paddle := timedHMAC("Paddle-Signature")
	paddle.signed, paddle.list = "{timestamp}:{body}", list{between: ";", is: "=", version: "h1", time: "ts"}
	square := bodyHMAC("X-Square-Hmacsha256-Signature", "base64", "")
	square.signed = "{url}{body}"
	adyenPlatform := bodyHMAC("HmacSignature", "base64", "")
	adyenPlatform.keys = "hex"
	mollie := bodyHMAC("X-Mollie-Signature", "hex", "sha256=")
	mollie.bare = true
	kofi := shared("form:data/json:verification_token")
	patreon := bodyHMAC("X-Patreon-Signature", "hex", "")
	patreon.algorithm = "hmac-md5"
	return []Provider{
		{Name: "stripe", Scheme: timedHMAC("Stripe-Signature"), EventID: "json:id", Tolerance: fiveMinutes, RetryWindow: 72 * hour,
			Special: "the secret is the whole text, `whsec_` included", Evidence: evidence(inSource, inDocs)},
		{Name: "paddle", Scheme: paddle, EventID: "json:event_id", Tolerance: fiveMinutes, Waits: 5 * time.Second, RetryWindow: 73 * hour,
			Special: "Paddle's own library allows 5 s only", Evidence: evidence(inSource, inDocs)},
		{Name: "square", Scheme: square, EventID: "json:event_id", Waits: 10 * time.Second, RetryWindow: 72 * hour,
			Evidence: evidence(inSource, inDocs)},
		{Name: "lemon-squeezy", Scheme: bodyHMAC("X-Signature", "hex", ""), EventID: "header:X-Event-Name+sha256", RetryWindow: time.Minute * 3,
			Special: "has no event id; a manual resend is a duplicate", Evidence: evidence(inSource, inDocs)},
		{Name: "paypal", Scheme: paypal(), EventID: "json:id", RetryWindow: 72 * hour,
			Special:  "the secret is the webhook's id; the certificate is fetched from PayPal, or given as a further secret in PEM; simulator events cannot be verified",
			Evidence: evidence(thirdParty, inDocs)},
		{Name: "adyen", Scheme: adyen(), DuplicateBody: "[accepted]", DuplicateContentType: "text/plain", Waits: 10 * time.Second, RetryWindow: 7 * 24 * hour,
			EventID:  "json:notificationItems[].NotificationRequestItem.pspReference+json:notificationItems[].NotificationRequestItem.eventCode+json:notificationItems[].NotificationRequestItem.success",
			Special:  "payments; every item must be signed, but fields outside of the signed eight are not protected",
			Evidence: evidence(inSource, thirdParty)},
		{Name: "adyen-platform", Scheme: adyenPlatform, DuplicateBody: "[accepted]", DuplicateContentType: "text/plain", Waits: 10 * time.Second, RetryWindow: 7 * 24 * hour,
			Special: "platforms, banking and management", Evidence: evidence(inSource, unconfirmed)},
		{Name: "razorpay", Scheme: bodyHMAC("X-Razorpay-Signature", "hex", ""), EventID: "header:X-Razorpay-Event-Id", Waits: 5 * time.Second, RetryWindow: 24 * hour,
			Special: "retries of older events are signed with the old secret: keep it for a day after a change", Evidence: evidence(inSource, unconfirmed)},
		{Name: "coinbase-commerce", Scheme: bodyHMAC("X-CC-Webhook-Signature", "hex", ""), EventID: "json:event.id", RetryWindow: 72 * hour,
			Evidence: inSource},
		{Name: "gocardless", Scheme: bodyHMAC("Webhook-Signature", "hex", ""), EventID: "json:events[].id", Special: "several events in one delivery", Evidence: inSource},
		{Name: "chargebee", Scheme: login(), EventID: "json:id", Waits: 60 * time.Second, RetryWindow: 7 * 24 * hour, Evidence: thirdParty},
		{Name: "mollie", Scheme: Scheme{algorithm: "none"}, EventID: "none", MissingID: "forward", Verifies: "nothing (Mollie's classic webhooks are not signed)",
			KeyNote: "none: the body is the payment's id, the same for each change of its state", Waits: 15 * time.Second, RetryWindow: 26 * hour,
			Special: "the application asks Mollie for the state and must bear repeats", Evidence: inDocs},
		{Name: "mollie-events", Scheme: mollie, EventID: "json:id", Waits: 15 * time.Second, RetryWindow: 26 * hour,
			Special: "the next-generation webhooks (beta)", Evidence: evidence(inDocs, unconfirmed)},
		{Name: "ko-fi", Scheme: kofi, EventID: "form:data/json:message_id", Evidence: inDocs},
		{Name: "patreon", Scheme: patreon, EventID: "header:X-Patreon-Event+sha256", Special: "has no event id; what piled up while a webhook was paused comes later", Evidence: inDocs},
	}
}
