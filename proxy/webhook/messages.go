package webhook

import "time"

// messages are the providers of chat, mail and telephony.
func messages() []Provider {
	versioned := func(signature, timestamp string) Scheme {
		return Scheme{algorithm: "hmac-sha256", at: "header:" + signature, encoding: "hex", prefix: "v0=",
			signed: "v0:{timestamp}:{body}", time: "header:" + timestamp, unit: "s"}
	}
	return []Provider{
		{Name: "slack", Scheme: versioned("X-Slack-Signature", "X-Slack-Request-Timestamp"), Tolerance: fiveMinutes,
			EventID: "json:event_id|form:trigger_id|form:payload/json:trigger_id", MissingID: "forward",
			Waits: 3 * time.Second, RetryWindow: 6 * time.Minute,
			Special:    "`url_verification` goes to the application; commands and interactions without a `trigger_id` are forwarded unclaimed",
			Evidence:   evidence(inSource, thirdParty),
			handshakes: []handshake{{SignedHandshake, jsonIs("type", "url_verification")}}},
	}
}
