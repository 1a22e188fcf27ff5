package webhook

import "time"

// code are the providers of source code, builds and operations.
func code() []Provider {
	const hour = time.Hour
	gitlab := standardWebhooks("whsec", "webhook-", "webhook-")
	buildkite := timedHMAC("X-Buildkite-Signature")
	buildkite.list.version, buildkite.list.time = "signature", "timestamp"
	versions := bodyHMAC("X-PagerDuty-Signature", "hex", "")
	versions.list = list{between: ",", is: "=", version: "v1"}
	circle := versions
	circle.at = "header:Circleci-Signature"
	vercel := bodyHMAC("X-Vercel-Signature", "hex", "")
	vercel.algorithm = "hmac-sha1"
	linear := bodyHMAC("Linear-Signature", "hex", "")
	linear.time, linear.unit = "json:webhookTimestamp", "ms"
	return []Provider{
		{Name: "github", Scheme: bodyHMAC("X-Hub-Signature-256", "hex", "sha256="), EventID: "header:X-GitHub-Delivery", Waits: 10 * time.Second, NoRetry: true,
			Special: "never retries by itself: a failed delivery must be redelivered by hand or through the API, with the same id", Evidence: evidence(inSource, inDocs)},
		{Name: "gitlab", Scheme: shared("header:X-Gitlab-Token"), EventID: "header:Idempotency-Key", MissingID: "forward", Waits: 10 * time.Second,
			Special: "the id is sent since GitLab 17.4; a 4xx soon switches the webhook off", Evidence: inDocs},
		{Name: "gitlab-signed", Scheme: gitlab, EventID: "header:webhook-id", Tolerance: fiveMinutes, Waits: 10 * time.Second,
			Special: "the signing token", Evidence: inDocs},
		{Name: "bitbucket", Scheme: bodyHMAC("X-Hub-Signature", "hex", "sha256="), EventID: "header:X-Request-UUID", Waits: 10 * time.Second,
			Special: "the id may be another on a retry", Evidence: thirdParty},
		{Name: "jira", Scheme: bodyHMAC("X-Hub-Signature", "hex", "sha256="), EventID: "header:X-Atlassian-Webhook-Identifier", Waits: 20 * time.Second,
			Evidence: evidence(thirdParty, unconfirmed)},
		{Name: "linear", Scheme: linear, EventID: "header:Linear-Delivery", Tolerance: time.Minute, Waits: 5 * time.Second, RetryWindow: 7*hour + time.Minute,
			Evidence: evidence(inSource, thirdParty)},
		{Name: "sentry", Scheme: bodyHMAC("Sentry-Hook-Signature", "hex", ""), EventID: "header:Request-ID", Waits: time.Second,
			Special: "waits 1 s only; the id may be another on a retry", Evidence: inSource},
		{Name: "vercel", Scheme: vercel, EventID: "json:id", Waits: 30 * time.Second, RetryWindow: 24 * hour, Evidence: thirdParty},
		{Name: "pagerduty", Scheme: versions, EventID: "header:X-Webhook-Id+json:event.id|json:event.id", Waits: 5 * time.Second, RetryWindow: 48 * hour,
			Special: "a 4xx loses the event: set `WEBHOOK_INVALID_STATUS=503` while the secret is changed", Evidence: evidence(inSource, inDocs)},
		{Name: "buildkite", Scheme: buildkite, EventID: "header:X-Buildkite-Event+sha256", Tolerance: fiveMinutes, Special: "has no event id, and a build can finish twice", Evidence: evidence(inSource, inDocs)},
		{Name: "buildkite-token", Scheme: shared("header:X-Buildkite-Token"), EventID: "header:X-Buildkite-Event+sha256", Special: "the weaker of its two modes", Evidence: inDocs},
		{Name: "circleci", Scheme: circle, EventID: "json:id", Waits: 10 * time.Second, Evidence: inDocs},
	}
}
