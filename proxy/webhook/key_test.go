package webhook

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// sample is an event as a provider sends it: {id} in header or body is what tells events apart, {n} what changes from
// attempt to attempt.
type sample struct{ headers, body string }

const form = "Content-Type: application/x-www-form-urlencoded"

// samples has at least one event for each preset with an event id.
var samples = map[string][]sample{
	"adyen": {{"", `{"live":"false","notificationItems":[{"NotificationRequestItem":{"pspReference":"{id}","eventCode":"REFUND","success":"true"}}]}`},
		{"", `{"notificationItems":[{"NotificationRequestItem":{"pspReference":"P1","eventCode":"{id}","success":"true"}}]}`},
		{"", `{"notificationItems":[{"NotificationRequestItem":{"pspReference":"P1","eventCode":"A","success":"{id}"}},{"NotificationRequestItem":{"pspReference":"P2","eventCode":"B","success":"true"}}]}`}},
	"asana":           {{"", `{"events":[{"action":"changed","created_at":"2026-01-01T00:00:00.000Z","resource":{"gid":"{id}"}}]}`}},
	"aws-sns":         {{"Content-Type: text/plain", `{"Type":"Notification","MessageId":"{id}","Message":"{\"id\":1}","Signature":"{n}"}`}},
	"basic":           {{"", `{"id":"{id}","attempt":{n}}`}},
	"bitbucket":       {{"X-Request-UUID: {id}", `{"repository":{}}`}},
	"buildkite":       {{"X-Buildkite-Event: build.finished", `{"event":"build.finished","build":{"id":"1","finished_at":"{id}"}}`}},
	"buildkite-token": {{"X-Buildkite-Event: {id}", `{"build":{"id":"1"}}`}},
	"calendly": {{"", `{"event":"invitee.created","created_at":"2026","payload":{"uri":"https://api.calendly.com/{id}"}}`},
		{"", `{"event":"{id}","created_at":"2026","payload":{"uri":"u"}}`}},
	"chargebee":         {{"", `{"id":"{id}","webhook_status":"{n}","content":{"customer":{"id":"c"}}}`}},
	"circleci":          {{"", `{"id":"{id}","happened_at":"{n}"}`}},
	"clerk":             {{"svix-id: {id}\nsvix-timestamp: {n}", `{"type":"user.created","data":{"id":"user_1"}}`}},
	"coinbase-commerce": {{"", `{"id":"delivery-{n}","attempt_number":{n},"event":{"id":"{id}","data":{"id":"charge"}}}`}},
	"contentful":        {{"X-Contentful-Idempotency-Key: {id}", `{"sys":{"id":"entry"}}`}, {"X-Contentful-Idempotency-Key: k", `{"sys":{"id":"entry","version":"{id}"}}`}},
	"discord":           {{"X-Signature-Timestamp: {n}", `{"id":"{id}","type":2,"application_id":"1"}`}},
	"discord-events":    {{"X-Signature-Timestamp: {n}", `{"type":1,"application_id":"1","event":{"type":"APPLICATION_AUTHORIZED","timestamp":"{id}","data":{}}}`}},
	"docusign": {{"", `{"event":"envelope-sent","retryCount":{n},"generatedDateTime":"{id}","data":{"envelopeId":"e"}}`},
		{"", `{"event":"recipient-completed","retryCount":{n},"generatedDateTime":"2026","data":{"envelopeId":"e","recipientId":"{id}"}}`}},
	"dropbox-sign":  {{form, `json=%7B%22event%22%3A%7B%22event_hash%22%3A%22{id}%22%7D%7D`}},
	"github":        {{"X-GitHub-Delivery: {id}", `{"action":"opened","id":7}`}},
	"gitlab":        {{"Idempotency-Key: {id}\nX-Gitlab-Event-UUID: {n}", `{"object_kind":"push"}`}},
	"gitlab-signed": {{"webhook-id: {id}\nwebhook-timestamp: {n}", `{"object_kind":"push"}`}},
	"gocardless":    {{"", `{"events":[{"id":"{id}"},{"id":"EV2"}],"meta":{"webhook_id":"{n}"}}`}},
	"hmac":          {{"", `{"id":"{id}","attempt":{n}}`}},
	"hubspot": {{"", `[{"eventId":"{id}","subscriptionId":1,"portalId":2,"occurredAt":3,"attemptNumber":{n},"objectId":9}]`},
		{"", `[{"eventId":1,"subscriptionId":1,"portalId":2,"occurredAt":"{id}","attemptNumber":{n}}]`},
		{"", `[{"eventId":"{id}","subscriptionId":1,"portalId":2,"attemptNumber":{n}},{"eventId":5,"subscriptionId":1,"portalId":2,"attemptNumber":{n}}]`}},
	"hubspot-legacy": {{"", `[{"eventId":"{id}","subscriptionId":1,"portalId":2,"occurredAt":3,"attemptNumber":{n}}]`}},
	"intercom":       {{"", `{"type":"notification_event","id":"{id}","delivery_attempts":{n},"data":{"item":{"id":"1"}}}`}},
	"jira":           {{"X-Atlassian-Webhook-Identifier: {id}", `{"webhookEvent":"jira:issue_updated"}`}},
	"ko-fi":          {{form, `data=%7B%22message_id%22%3A%22{id}%22%2C%22kofi_transaction_id%22%3A%22t%22%7D`}},
	"lemon-squeezy":  {{"X-Event-Name: {id}", `{"data":{"id":"1"}}`}, {"X-Event-Name: order_created", `{"data":{"id":"1","attributes":{"updated_at":"{id}"}}}`}},
	"line":           {{"", `{"events":[{"webhookEventId":"{id}","deliveryContext":{"isRedelivery":"{n}"},"message":{"id":"1"}}]}`}},
	"linear":         {{"Linear-Delivery: {id}", `{"webhookTimestamp":{n},"webhookId":"w","data":{"id":"i"}}`}},
	"mailgun": {{"", `{"signature":{"timestamp":"{n}","token":"{n}"},"event-data":{"id":"{id}"}}`},
		{form, `timestamp={n}&token={id}&recipient=bob%40example.test`}},
	"meta": {{"", `{"object":"whatsapp_business_account","entry":[{"id":"acct","changes":[{"value":{"messages":[{"id":"wamid.{id}"}]}}]}]}`},
		{"", `{"entry":[{"id":"acct","changes":[{"value":{"statuses":[{"id":"wamid.1","status":"{id}"}]}}]}]}`},
		{"", `{"object":"page","entry":[{"id":"page","messaging":[{"message":{"mid":"{id}"}}]}]}`}},
	"mollie-events": {{"", `{"resource":"event","id":"{id}","entityId":"pl_1"}`}},
	"mux":           {{"", `{"id":"{id}","attempts":[{n}],"data":{"id":"asset"}}`}},
	"none":          {{"", `{"id":"{id}","attempt":{n}}`}},
	"notion":        {{"", `{"id":"{id}","attempt_number":{n},"entity":{"id":"page"}}`}},
	"okta":          {{"", `{"eventId":"{n}","data":{"events":[{"uuid":"{id}"}]}}`}},
	"openai":        {{"webhook-id: {id}\nwebhook-timestamp: {n}", `{"id":"evt"}`}},
	"paddle":        {{"", `{"event_id":"{id}","notification_id":"ntf_{n}","data":{"id":"txn"}}`}},
	"pagerduty":     {{"X-Webhook-Id: {id}", `{"event":{"id":"e","data":{"id":"incident"}}}`}, {"", `{"event":{"id":"{id}","data":{"id":"incident"}}}`}},
	"patreon":       {{"X-Patreon-Event: {id}", `{"data":{"id":"member"}}`}, {"X-Patreon-Event: members:update", `{"data":{"id":"member","attributes":"{id}"}}`}},
	"paypal":        {{"Paypal-Transmission-Id: {n}", `{"id":"WH-{id}","resource":{"id":"sale"}}`}},
	"razorpay":      {{"X-Razorpay-Event-Id: {id}", `{"event":"payment.captured"}`}},
	"resend":        {{"svix-id: {id}\nsvix-timestamp: {n}", `{"type":"email.sent"}`}},
	"sanity":        {{"Idempotency-Key: {id}\nSanity-Webhook-Signature: t={n}", `{"_id":"doc"}`}},
	"sendgrid":      {{"", "[{\"event\":\"open\",\"sg_event_id\":\"{id}\"},\r\n{\"event\":\"click\",\"sg_event_id\":\"x\"}]\r\n"}},
	"sentry":        {{"Request-ID: {id}\nSentry-Hook-Timestamp: {n}", `{"action":"created","data":{"issue":{"id":"1"}}}`}},
	"shopify":       {{"X-Shopify-Webhook-Id: {id}\nX-Shopify-Topic: orders/paid\nX-Shopify-Event-Id: e\nX-Shopify-Triggered-At: {n}", `{"id":820982911946154508}`}, {"shopify-webhook-id: {id}", `{}`}},
	"slack": {{"X-Slack-Retry-Num: {n}", `{"type":"event_callback","event_id":"Ev{id}","event":{"ts":"1"}}`},
		{form, `command=%2Fdeploy&trigger_id={id}&text=now`},
		{form, `payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%22{id}%22%7D`}},
	"square":            {{"", `{"event_id":"{id}","data":{"id":"payment"},"retry":{n}}`}},
	"standard-webhooks": {{"webhook-id: {id}\nwebhook-timestamp: {n}", `{"id":"x"}`}, {"svix-id: {id}", `{"id":"x"}`}},
	"stream":            {{"X-Webhook-Id: {id}\nX-Webhook-Attempt: {n}", `{"type":"message.new"}`}},
	"stripe":            {{"", "{\n  \"id\": \"evt_{id}\",\n  \"data\": {\"object\": {\"id\": \"in_1\"}},\n  \"pending_webhooks\": {n}\n}"}},
	"svix":              {{"svix-id: {id}\nsvix-timestamp: {n}", `{"id":"x"}`}, {"webhook-id: {id}", `{"id":"x"}`}},
	"telegram":          {{"", `{"update_id":81500{id},"message":{"message_id":{n}}}`}},
	"telnyx":            {{"", `{"data":{"id":"{id}","payload":{"id":"call"}},"meta":{"attempt":{n}}}`}},
	"token":             {{"", `{"id":"{id}","attempt":{n}}`}},
	"twilio": {{form + "\nI-Twilio-Idempotency-Token: {n}", `MessageSid=SM1&MessageStatus={id}`}, {form, `MessageSid=SM{id}&SmsStatus=received&Body=hi`},
		{form, `CallSid=CA1&CallStatus=completed&SequenceNumber={id}`},
		{form + "\nI-Twilio-Idempotency-Token: {id}", `CallSid=CA1&CallStatus=in-progress&Digits=1`}},
	"twitch":      {{"Twitch-Eventsub-Message-Id: {id}\nTwitch-Eventsub-Message-Type: notification", `{"subscription":{"id":"s"}}`}},
	"typeform":    {{"", `{"event_id":"{id}","form_response":{"token":"t"}}`}},
	"vercel":      {{"", `{"id":"{id}","payload":{"deployment":{"id":"d"}}}`}},
	"woocommerce": {{"X-WC-Webhook-Delivery-ID: {id}", `{"id":727}`}, {"X-WC-Webhook-Delivery-ID: d", `{"id":727,"status":"{id}"}`}},
	"workos":      {{"", `{"id":"event_{id}","data":{"id":"user"}}`}},
	"xero": {{"", `{"events":[{"resourceId":"r","eventType":"UPDATE","eventDateUtc":"{id}"}],"lastEventSequence":1}`},
		{"", `{"events":[{"resourceId":"{id}","eventType":"UPDATE","eventDateUtc":"2026"}]}`}},
	"zendesk": {{"X-Zendesk-Webhook-Invocation-Id: {id}\nX-Zendesk-Webhook-Signature-Timestamp: {n}", `{"ticket":"1"}`}},
	"zoom": {{"", `{"event":"meeting.started","event_ts":1626230691572,"payload":{"object":{"uuid":"{id}"}}}`},
		{"", `{"event":"meeting.participant_joined","event_ts":1,"payload":{"object":{"uuid":"u","participant":{"user_id":"{id}"}}}}`},
		{"", `{"event":"user.created","event_ts":{id},"payload":{"object":{"id":"u"}}}`}},
}

func (s sample) request(id, n string) *Request {
	fill := strings.NewReplacer("{id}", id, "{n}", n)
	r := &Request{Method: "POST", Target: "/webhook", Header: http.Header{}, Body: []byte(fill.Replace(s.body))}
	for line := range strings.SplitSeq(fill.Replace(s.headers), "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Add(name, value)
		}
	}
	return r
}

func TestARetryKeepsTheKeyAndAnotherEventChangesIt(t *testing.T) {
	for _, p := range Providers() {
		if p.EventID == "" || p.EventID == "none" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			rule, err := ParseKeyRule(p.EventID)
			if err != nil {
				t.Fatal(err)
			}
			if len(samples[p.Name]) == 0 {
				t.Fatal("add an event to samples")
			}
			for _, s := range samples[p.Name] {
				first, from, ok := rule.Find(s.request("1", "1"))
				if !ok || from == "" {
					t.Errorf("no id in %v", s)
				}
				if again, ok := rule.EventID(s.request("1", "2")); !ok || again != first {
					t.Errorf("a retry has the id %q instead of %q", again, first)
				}
				if other, ok := rule.EventID(s.request("2", "1")); !ok || other == first {
					t.Errorf("another event has the id %q too", other)
				}
			}
		})
	}
}

// Requests that have no safe id, and must not get one.
func TestResourceIDsAreNoKeys(t *testing.T) {
	for _, tt := range []struct {
		provider string
		sample
	}{
		{"mollie", sample{form, "id=tr_1"}},
		{"dropbox", sample{"", `{"list_folder":{"accounts":["a"]}}`}},
		{"asana", sample{"", `{"events":[]}`}},
		{"line", sample{"", `{"events":[]}`}},
		{"twilio", sample{form, "CallSid=CA1&CallStatus=in-progress&Digits=1"}},
		{"slack", sample{"", `{"type":"app_rate_limited"}`}},
		{"meta", sample{"", `{"entry":[{"id":"page","changes":[{"value":{"messages":[{"id":"m"}]}},{"value":{"statuses":[{"id":"m","status":"read"}]}}]}]}`}},
		{"sendgrid", sample{"", `[{"sg_event_id":"a"},{"event":"group_resubscribe"}]`}},
		{"gitlab", sample{"X-Gitlab-Event-UUID: u", `{"id":1}`}},
		{"github", sample{"", `{"id":1}`}},
		{"adyen-platform", sample{"", `{"data":{"id":"TR1"}}`}},
	} {
		p, _ := Lookup(tt.provider)
		rule, err := ParseKeyRule(p.EventID)
		if p.EventID == "" {
			rule, err = ParseKeyRule("none")
		}
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := rule.EventID(tt.request("", "")); ok {
			t.Errorf("%s: %q was taken for an event id", tt.provider, id)
		}
	}
}

func TestIDsOutsideOfJSON(t *testing.T) {
	const boundary = "Content-Type: multipart/form-data; boundary=x"
	multipart := func(fields ...string) string {
		body := ""
		for i := 0; i < len(fields); i += 2 {
			body += "--x\r\nContent-Disposition: form-data; name=\"" + fields[i] + "\"\r\n\r\n" + fields[i+1] + "\r\n"
		}
		return body + "--x--\r\n"
	}
	for _, tt := range []struct{ name, rule, headers, body, target, want string }{
		{"a header", "header:x-id", "X-Id: a b", "", "", "a b"},
		{"a header is trimmed", "header:X-Id", "X-Id:  a\t", "", "", "a"},
		{"a blank header", "header:X-Id", "X-Id:  ", "", "", ""},
		{"no header", "header:X-Id", "", "", "", ""},
		{"a header twice", "header:X-Id", "X-Id: a\nX-Id: a", "", "", "a"},
		{"two values of a header", "header:X-Id", "X-Id: a\nX-Id: b", "", "", ""},
		{"a form field", "form:a b", form, "x=1&a+b=%C3%A9%2B+1", "", "é+ 1"},
		{"a form field with parameters", "form:a", form + "; charset=utf-8", "a=1", "", "1"},
		{"an empty form field", "form:a", form, "a=&b=1", "", ""},
		{"two values of a field", "form:a", form, "a=1&a=2", "", ""},
		{"no form", "form:a", "Content-Type: application/json", "a=1", "", ""},
		{"a broken escape", "form:a", form, "a=100%&b=%zz", "", "100%"},
		{"JSON in a field", "form:p/json:a.b", form, "p=" + url.QueryEscape(`{"a":{"b":7}}`), "", "7"},
		{"no JSON in a field", "form:p/json:a", form, "p=x", "", ""},
		{"multipart", "form:a", boundary, multipart("b", "2", "a", "1\r\n2"), "", "1\r\n2"},
		{"multipart cut off", "form:a", boundary, multipart("a", "1")[:55], "", ""},
		{"JSON in multipart", "form:json/json:e.h", boundary, multipart("json", `{"e":{"h":"x"}}`), "", "x"},
		{"the query", "query:id", "", "", "/p?x=1&id=a%20b", "a b"},
		{"no query", "query:id", "", "", "/p/id=1", ""},
		{"two values in the query", "query:id", "", "", "/p?id=1&id=2", ""},
		{"several sources", "header:X-Id+query:id+form:a", form + "\nX-Id: h", "a=f", "/?id=q", "h+q+f"},
		{"compressed JSON", "json:id", "Content-Encoding: gzip", "\x1f\x8b\x08\x00", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule, err := ParseKeyRule(tt.rule)
			if err != nil {
				t.Fatal(err)
			}
			r := sample{tt.headers, tt.body}.request("", "")
			r.Target = tt.target
			if got, ok := rule.EventID(r); got != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, %v; want %q", got, ok, tt.want)
			}
		})
	}
}

func TestFaultsInKeyRulesAreTold(t *testing.T) {
	for rule, want := range map[string]string{
		"":                                       "is empty",
		"jsn:id":                                 "no place",
		"id":                                     "no place",
		"json:":                                  "no path",
		"json:a..b":                              "no path",
		"json:a.[].b":                            "no path",
		"json:a[0].b":                            "one element",
		"json:a[":                                "one element",
		"json:%zz":                               "no path",
		"json:a+":                                "is empty",
		"json:a|":                                "is empty",
		"none+json:id":                           "no place",
		"header:":                                "lacks the name",
		"header:X Id":                            "names no header",
		"header:X-Ä":                             "names no header",
		"header":                                 "lacks the name",
		"form:":                                  "lacks the name",
		"form:a/json:":                           "no path",
		"query:":                                 "lacks the name",
		"sha256:":                                "no path",
		"json:" + strings.Repeat("a.", 16) + "a": "too deep",
	} {
		_, err := ParseKeyRule(rule)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want …%s…", rule, err, want)
		}
	}
	for _, rule := range []string{"none", " sha256 ", "json:id", "json:a[].b", "json:[]", "json:a[][].b", "sha256:a.b", "json:event-data.id", "header:X-A | json:b + query:c"} {
		k, err := ParseKeyRule(rule)
		if err != nil || k.String() != strings.TrimSpace(rule) {
			t.Errorf("%q: %q, %v", rule, k, err)
		}
		if k.None() != (rule == "none") || k.Body() != (rule == " sha256 ") {
			t.Errorf("%q: None %v, Body %v", rule, k.None(), k.Body())
		}
		if _, ok := k.EventID(&Request{}); ok {
			t.Errorf("%q finds an id in an empty request", rule)
		}
	}
}

func FuzzParseKeyRule(f *testing.F) {
	for _, seed := range []string{"json:id", "json:a[].b+header:X-Id|form:p/json:a", "sha256:a", "query:x%2B", "json:[].a", "none", "a:b:c"} {
		f.Add(seed, []byte(`{"id":1,"a":[{"b":2}]}`))
	}
	f.Fuzz(func(t *testing.T, rule string, body []byte) {
		k, err := ParseKeyRule(rule)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("no words")
			}
			return
		}
		r := &Request{Body: body, Target: "/?" + string(body), Header: http.Header{"Content-Type": {form[14:]}}}
		id, ok := k.EventID(r)
		if ok && id == "" {
			t.Fatalf("%q found an empty id", rule)
		}
		again, err := ParseKeyRule(k.String())
		if err != nil {
			t.Fatalf("%q is not read back: %v", k, err)
		}
		if id2, ok2 := again.EventID(r); id2 != id || ok2 != ok {
			t.Fatalf("%q read back finds %q instead of %q", k, id2, id)
		}
	})
}

func TestEventKeys(t *testing.T) {
	long := strings.Repeat("x", 255)
	for id, want := range map[string]string{
		"evt_1":         "evt:evt_1",
		"a b/c:d":       "evt:a b/c:d",
		"🧿":             "evt:🧿",
		"\uFFFD":        "evt:\uFFFD",
		long:            "evt:" + long,
		long + "x":      "evt-sha256:" + hexSHA256([]byte(long+"x")),
		"a\x00b":        "evt-sha256:" + hexSHA256([]byte("a\x00b")),
		"a\nb":          "evt-sha256:" + hexSHA256([]byte("a\nb")),
		"\x7f":          "evt-sha256:" + hexSHA256([]byte("\x7f")),
		"\u0085":        "evt-sha256:" + hexSHA256([]byte("\u0085")),
		"\xff":          "evt-sha256:" + hexSHA256([]byte("\xff")),
		"a\xed\xa0\xbd": "evt-sha256:" + hexSHA256([]byte("a\xed\xa0\xbd")),
	} {
		if got := EventKey(id); got != want {
			t.Errorf("EventKey(%q) = %q, want %q", id, got, want)
		}
	}
	if got, want := BodyKey([]byte("abc")), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; got != want {
		t.Errorf("BodyKey = %q", got)
	}
}

func TestNothing(t *testing.T) {
	for body, want := range map[string]bool{"": true, " \r\n\t": true, "{}": true, " { } ": true, "[\n]": true, "[}": false, "0": false, "null": false,
		`""`: false, "{}{}": false, "[[]]": false, "\x00": false, `{"a":1}`: false} {
		if got := Nothing([]byte(body)); got != want {
			t.Errorf("Nothing(%q) = %v", body, got)
		}
	}
	if Nothing(bytes.Repeat([]byte("x"), 100)) {
		t.Error("a long body is something")
	}
}

func TestScopedKeys(t *testing.T) {
	long := strings.Repeat("x", 260)
	for _, tt := range []struct{ name, rest, key, want string }{
		{"", "", "evt:1", "evt:1"},
		{"github", "", "evt:1", "github/evt:1"},
		{"", "billing", "evt:1", "billing/evt:1"},
		{"name", "rest", "evt:1", "name/rest/evt:1"},
		{"name", "a/b", "evt:1", "name/a/b/evt:1"},
		{"", "a/b", "evt:1", "a/b/evt:1"},
		{"", "a/b/", "evt:1", "a/b//evt:1"},
		{"", "a%2Fb", "evt:1", "a%2Fb/evt:1"},
		{"", "x/evt:1", "evt:2", `x/evt\:1/evt:2`},
		{"x", "", "evt:1/evt:2", "x/evt:1/evt:2"},
		{"", "evt:1", "evt:2", `evt\:1/evt:2`},
		{"", "a:b", "sha256:0", "a:b/sha256:0"},
		{"", "a\x00\xff", "evt:1", `a\x00.\xff./evt:1`},
		{"", `a\`, "evt:1", `a\\/evt:1`},
		{"n", long, "evt:1", "key-sha256:" + hexSHA256([]byte("n/"+long+"/evt:1"))},
	} {
		if got := ScopedKey(tt.name, tt.rest, tt.key); got != tt.want {
			t.Errorf("ScopedKey(%q, %q, %q) = %q, want %q", tt.name, tt.rest, tt.key, got, tt.want)
		}
	}
}

// FuzzScopedKey looks for two rests or keys that give the same scoped key, with a name and without, and for what a text
// column cannot hold.
func FuzzScopedKey(f *testing.F) {
	for _, seed := range [][4]string{
		{"a", "b", "1", "a/b"}, {"a/b", "", "1", "a"}, {"x/evt:1", "", "2", "x"}, {"", "", "x/evt:1", ""}, {`a\`, `/b`, "1", `a\/b`},
		{"a", "evt:1", "sha256:0", "evt"}, {"\x00", "\xff", "1", `\x00.`}, {"a", "/b", "1", "a/"}, {"key-sha256:", "", "", "a"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, a, b, id, c string) {
		for _, names := range [][]string{{""}, {"n", "m"}} {
			type input struct{ name, rest, key string }
			seen := map[string]input{}
			for _, name := range names {
				for _, rest := range []string{"", a, b, c, a + "/" + b, b + "/" + c, a + "/evt:" + id, "n", "m"} {
					for _, key := range []string{EventKey(id), EventKey(c), BodyKey([]byte(id)), EventKey("evt:" + id), EventKey(c + "/evt:" + id), EventKey(b + "/" + id)} {
						scoped, in := ScopedKey(name, rest, key), input{name, rest, key}
						if other, found := seen[scoped]; found && other != in {
							t.Fatalf("%q and %q both give %q", in, other, scoped)
						}
						seen[scoped] = in
						if !utf8.ValidString(scoped) || strings.ContainsFunc(scoped, unicode.IsControl) || name+rest != "" && len(scoped) > maxKey {
							t.Fatalf("%q cannot be stored", scoped)
						}
					}
				}
			}
		}
	})
}

func ExampleScopedKey() {
	fmt.Println(ScopedKey("", "billing", EventKey("evt_1")))
	// Output: billing/evt:evt_1
}
