package webhook

import "time"

// platforms are the providers of identity, customers, documents, storage and clouds.
func platforms() []Provider {
	const hour = time.Hour
	svix := standardWebhooks("whsec", "svix-", "webhook-")
	workos := timedHMAC("WorkOS-Signature")
	workos.unit = "ms"
	docusign := bodyHMAC("X-DocuSign-Signature-1", "base64", "")
	docusign.numbered = true
	zendesk := bodyHMAC("X-Zendesk-Webhook-Signature", "base64", "")
	zendesk.signed, zendesk.time, zendesk.unit = "{timestamp}{body}", "header:X-Zendesk-Webhook-Signature-Timestamp", "rfc3339"
	return []Provider{
		{Name: "clerk", Scheme: svix, EventID: "header:svix-id|header:webhook-id", Tolerance: fiveMinutes, Waits: 15 * time.Second, RetryWindow: 28 * hour,
			Evidence: evidence(inSource, inDocs)},
		{Name: "openai", Scheme: standardWebhooks("openai", "webhook-", "webhook-"), EventID: "header:webhook-id", Tolerance: fiveMinutes, Waits: 20 * time.Second,
			RetryWindow: 72 * hour, Special: "a secret without `whsec_` is taken as it stands", Evidence: inSource},
		{Name: "workos", Scheme: workos, EventID: "json:id", Tolerance: 3 * time.Minute, RetryWindow: 72 * hour, Evidence: inSource},
		{Name: "okta", Scheme: shared("header:Authorization"), EventID: "json:data.events[].uuid", Waits: 3 * time.Second,
			Special: "retries once at most, and never after a 4xx", Evidence: inDocs},
		{Name: "hubspot", Scheme: hubspot(), EventID: "json:[].eventId+json:[].subscriptionId+json:[].portalId+json:[].occurredAt|json:[].eventId+json:[].subscriptionId+json:[].portalId",
			Tolerance: fiveMinutes, Waits: 5 * time.Second, RetryWindow: 24 * hour,
			Special: "signature v3; a 4xx loses the event: set `WEBHOOK_INVALID_STATUS=503` while the secret is changed", Evidence: evidence(inSource, unconfirmed)},
		{Name: "hubspot-legacy", Scheme: hubspotLegacy(), EventID: "json:[].eventId+json:[].subscriptionId+json:[].portalId+json:[].occurredAt|json:[].eventId+json:[].subscriptionId+json:[].portalId",
			Waits: 5 * time.Second, RetryWindow: 24 * hour, Special: "signatures v1 and v2, which are weaker: only where v3 is not sent; v2 needs `WEBHOOK_PUBLIC_URL`", Evidence: evidence(inSource, unconfirmed)},
		{Name: "mux", Scheme: timedHMAC("Mux-Signature"), EventID: "json:id", Tolerance: fiveMinutes, RetryWindow: 24 * hour, Evidence: inSource},
		{Name: "notion", Scheme: bodyHMAC("X-Notion-Signature", "hex", "sha256="), EventID: "json:id", RetryWindow: 24 * hour,
			Special:    "the first request brings the secret: `WEBHOOK_HANDSHAKE=open` lets it through to the application",
			Evidence:   inSource,
			handshakes: []handshake{{OpenHandshake, notionToken()}}},
		{Name: "asana", Scheme: bodyHMAC("X-Hook-Signature", "hex", ""), EventID: "json:events[].created_at+sha256", MissingID: "forward", Waits: 10 * time.Second, RetryWindow: 24 * hour,
			Special:    "the first request brings the secret: `WEBHOOK_HANDSHAKE=open` lets it through to the application; heartbeats are forwarded unclaimed",
			Evidence:   inDocs,
			handshakes: []handshake{{OpenHandshake, asanaSecret}}},
		{Name: "dropbox", Scheme: bodyHMAC("X-Dropbox-Signature", "hex", ""), EventID: "none", MissingID: "forward", Waits: 10 * time.Second, RetryWindow: 10 * time.Minute,
			KeyNote: "none: it only says that something changed, and equal bodies are different changes", Evidence: inDocs},
		{Name: "dropbox-sign", Scheme: Scheme{algorithm: "hmac-sha256", at: "form:json/json:event.event_hash", encoding: "hex", signed: "{timestamp}{id}",
			time: "form:json/json:event.event_time", unit: "s", id: "form:json/json:event.event_type"},
			EventID: "form:json", DuplicateBody: "Hello API Event Received", DuplicateContentType: "text/plain",
			KeyNote: "the hash of the form field `json`", Special: "the secret is the API key; time and type are signed, the rest is not", Evidence: thirdParty},
		{Name: "docusign", Scheme: docusign, Waits: 100 * time.Second, RetryWindow: 7 * 24 * hour,
			EventID:  "json:event+json:data.envelopeId+json:data.recipientId+json:generatedDateTime|json:event+json:data.envelopeId+json:generatedDateTime",
			Special:  "a header for each active key, any may match",
			Evidence: evidence(thirdParty, unconfirmed)},
		{Name: "zendesk", Scheme: zendesk, EventID: "header:X-Zendesk-Webhook-Invocation-Id", MissingID: "forward", Waits: 10 * time.Second, Evidence: evidence(thirdParty, unconfirmed)},
		{Name: "xero", Scheme: bodyHMAC("X-Xero-Signature", "base64", ""), EventID: "json:events[].resourceId+json:events[].eventType+json:events[].eventDateUtc",
			InvalidStatus: 401, Waits: 5 * time.Second, RetryWindow: 24 * hour,
			Special: "its intent to receive comes with wrong signatures too, which must be 401; answers must be empty", Evidence: inDocs},
		{Name: "aws-sns", Scheme: sns(), EventID: "json:MessageId", Waits: 15 * time.Second, RetryWindow: hour,
			Special:    "no secret: the certificate is fetched from Amazon, or given as a secret in PEM; subscription and unsubscription go to the application; not for raw message delivery",
			Evidence:   evidence(inSource, unconfirmed),
			handshakes: []handshake{{SignedHandshake, jsonIs("Type", "SubscriptionConfirmation", "UnsubscribeConfirmation")}}},
	}
}
