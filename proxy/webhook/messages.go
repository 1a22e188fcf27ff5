package webhook

import "time"

// messages are the providers of chat, mail and telephony.
func messages() []Provider {
	const hour = time.Hour
	versioned := func(signature, timestamp string) Scheme {
		return Scheme{algorithm: "hmac-sha256", at: "header:" + signature, encoding: "hex", prefix: "v0=",
			signed: "v0:{timestamp}:{body}", time: "header:" + timestamp, unit: "s"}
	}
	public := func(algorithm, keys, encoding, signed, at, timestamp string) Scheme {
		return Scheme{algorithm: algorithm, keys: keys, encoding: encoding, signed: signed, at: "header:" + at, time: "header:" + timestamp, unit: "s"}
	}
	discord := public("ed25519", "ed25519-hex", "hex", "{timestamp}{body}", "X-Signature-Ed25519", "X-Signature-Timestamp")
	return []Provider{
		{Name: "slack", Scheme: versioned("X-Slack-Signature", "X-Slack-Request-Timestamp"), Tolerance: fiveMinutes,
			EventID: "json:event_id|form:trigger_id|form:payload/json:trigger_id", MissingID: "forward", Waits: 3 * time.Second, RetryWindow: 7 * time.Minute,
			Special:    "`url_verification` goes to the application; commands and interactions need their own answer and are not retried",
			Evidence:   evidence(inSource, thirdParty),
			handshakes: []handshake{{SignedHandshake, jsonIs("type", "url_verification")}}},
		{Name: "zoom", Scheme: versioned("X-Zm-Signature", "X-Zm-Request-Timestamp"), Waits: 3 * time.Second, RetryWindow: 86 * time.Minute,
			EventID: "json:event+json:event_ts+json:payload.object.uuid+json:payload.object.participant.user_id" +
				"|json:event+json:event_ts+json:payload.object.uuid|json:event+json:event_ts+json:payload.object.id",
			Special:    "`endpoint.url_validation` goes to the application",
			Evidence:   evidence(inSource, unconfirmed),
			handshakes: []handshake{{SignedHandshake, jsonIs("event", "endpoint.url_validation")}}},
		{Name: "discord", Scheme: discord, EventID: "json:id", Replay: true, Waits: 3 * time.Second, NoRetry: true,
			Special: "interactions; `PING` goes to the application; a wrong signature must be 401", Evidence: inDocs, InvalidStatus: 401,
			handshakes: []handshake{{SignedHandshake, jsonIs("type", "1")}}},
		{Name: "discord-events", Scheme: discord, EventID: "sha256:event", DuplicateStatus: 204, Waits: 3 * time.Second, RetryWindow: 10 * time.Minute,
			Special: "webhook events; `PING` goes to the application; a wrong signature must be 401", Evidence: inDocs, InvalidStatus: 401,
			handshakes: []handshake{{SignedHandshake, jsonIs("type", "0")}}},
		{Name: "line", Scheme: bodyHMAC("X-Line-Signature", "base64", ""), EventID: "json:events[].webhookEventId",
			Special:    "the console's Verify (no events) goes to the application",
			Evidence:   evidence(inSource, inDocs),
			handshakes: []handshake{{SignedHandshake, emptyArray("events")}}},
		{Name: "telegram", Scheme: shared("header:X-Telegram-Bot-Api-Secret-Token"), EventID: "json:update_id", RetryWindow: 24 * hour,
			Special: "an answer's `method` is executed by Telegram: a duplicate's is empty", Evidence: inSource},
		{Name: "meta", Scheme: bodyHMAC("X-Hub-Signature-256", "hex", "sha256="), RetryWindow: 36 * hour,
			EventID: "json:entry[].changes[].value.messages[].id|json:entry[].changes[].value.statuses[].id+json:entry[].changes[].value.statuses[].status" +
				"|json:entry[].messaging[].message.mid",
			Special: "WhatsApp, Messenger, Instagram", Evidence: evidence(inDocs, thirdParty)},
		{Name: "intercom", Scheme: Scheme{algorithm: "hmac-sha1", at: "header:X-Hub-Signature", encoding: "hex", prefix: "sha1=", signed: "{body}"},
			EventID: "json:id", Waits: 5 * time.Second, Evidence: thirdParty},
		{Name: "twilio", Scheme: twilio(), Replay: true, Waits: 15 * time.Second, MissingID: "forward",
			EventID:       "form:MessageSid+form:MessageStatus|form:MessageSid+form:SmsStatus|form:CallSid+form:CallStatus+form:SequenceNumber|json:[].id|header:I-Twilio-Idempotency-Token",
			DuplicateBody: "<Response/>", DuplicateContentType: "text/xml",
			Special:  "steps of a call share sid and status, so they are forwarded unclaimed where there is no token; a shared key's secret works too",
			Evidence: evidence(inSource, inDocs)},
		{Name: "sendgrid", Scheme: public("ecdsa", "ecdsa", "base64", "{timestamp}{body}", "X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"),
			EventID: "json:[].sg_event_id", Waits: 10 * time.Second, RetryWindow: 24 * hour,
			Special: "several events in one delivery; a retry may group them otherwise", Evidence: evidence(inSource, inDocs)},
		{Name: "mailgun", Scheme: Scheme{algorithm: "hmac-sha256", at: "json:signature.signature|form:signature", encoding: "hex", signed: "{timestamp}{id}",
			time: "json:signature.timestamp|form:timestamp", unit: "s", id: "json:signature.token|form:token"},
			EventID: "json:event-data.id|form:token", RetryWindow: 8 * hour,
			Special: "the signature covers no content: whoever has seen one can send anything until a tolerance ends it", Evidence: evidence(inSource, inSource)},
		{Name: "telnyx", Scheme: public("ed25519", "ed25519-base64", "base64", "{timestamp}|{body}", "Telnyx-Signature-Ed25519", "Telnyx-Timestamp"),
			EventID: "json:data.id", Tolerance: fiveMinutes, Evidence: evidence(inSource, unconfirmed)},
		{Name: "resend", Scheme: standardWebhooks("whsec", "svix-", "webhook-"), EventID: "header:svix-id|header:webhook-id", Tolerance: fiveMinutes,
			Waits: 15 * time.Second, RetryWindow: 28 * hour, Evidence: evidence(inSource, inDocs)},
		{Name: "stream", Scheme: stream(), EventID: "header:X-Webhook-Id", Special: "signs the uncompressed body", Evidence: evidence(inDocs, unconfirmed)},
		{Name: "twitch", Scheme: Scheme{algorithm: "hmac-sha256", at: "header:Twitch-Eventsub-Message-Signature", encoding: "hex", prefix: "sha256=",
			signed: "{id}{timestamp}{body}", time: "header:Twitch-Eventsub-Message-Timestamp", unit: "rfc3339", id: "header:Twitch-Eventsub-Message-Id"},
			EventID: "header:Twitch-Eventsub-Message-Id", Tolerance: 10 * time.Minute,
			Special: "challenge and revocation go to the application", Evidence: evidence(inDocs, thirdParty),
			handshakes: []handshake{{SignedHandshake, headerIs("Twitch-Eventsub-Message-Type", "webhook_callback_verification", "revocation")}}},
	}
}
