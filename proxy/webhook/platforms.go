package webhook

// platforms are all other providers.
func platforms() []Provider { return nil }
