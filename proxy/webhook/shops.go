package webhook

import "time"

// shops are the providers of shops and content.
func shops() []Provider {
	shopify := bodyHMAC("X-Shopify-Hmac-Sha256", "base64", "")
	shopify.at += "|header:Shopify-Hmac-Sha256"
	return []Provider{
		{Name: "shopify", Scheme: shopify, EventID: "header:X-Shopify-Webhook-Id|header:Shopify-Webhook-Id",
			Waits: 5 * time.Second, RetryWindow: 4 * time.Hour,
			Special: "also the newer Events, whose headers lack the `X-`; test notifications from the shop's settings are signed with another key", Evidence: inSource},
	}
}
