package main

import (
	"regexp"
	"slices"
	"strings"
)

// ours begin like variables of hookonce. What begins so and is not known is a
// typing mistake, and a setting that silently does not hold.
var ours = []string{"WEBHOOK_", "WEBHOOKS_", "UPSTREAM_", "DATABASE_URL", "EVENTS_TABLE", "IN_FLIGHT_", "MAX_BODY", "MAX_BUF",
	"CLEANUP_", "RETENTION", "ON_UNKNOWN", "ON_STORE", "STORE_", "SHUTDOWN_", "LEASE", "AUTO_MIGRATE", "ADOPT_", "LISTEN_ADDR",
	"ADMIN_ADDR", "UNMATCHED", "LOG_LEVEL", "LOG_FORMAT", "READ_TIMEOUT"}

// notOurs begin alike and are nobody's fault: n8n's own.
var notOurs = []string{"WEBHOOK_URL", "WEBHOOK_TUNNEL_URL"}

// serviceLink is the shape of the variables that Kubernetes makes for a
// Service in the same namespace, whatever its name.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func checkUnknown(vars map[string]string, known []string, f *faults) {
	for name := range vars {
		if slices.Contains(known, name) || slices.Contains(notOurs, name) || serviceLink.MatchString(name) {
			continue
		}
		nearest, distance := "", 1<<10
		for _, k := range known {
			if d := editDistance(name, k); d < distance {
				nearest, distance = k, d
			}
		}
		near := distance <= 2 && len(nearest) >= 5*distance // the shorter the name, the more others resemble it by chance
		if !near && !slices.ContainsFunc(ours, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			continue
		}
		if distance <= 3 {
			f.add(name, "unknown; did you mean %s?", nearest)
			continue
		}
		f.add(name, "unknown; hookonce has no such variable (a webhook's own begin with WEBHOOK_, or WEBHOOK_<NAME>_ for those named in WEBHOOKS)")
	}
}

// editDistance is how many characters have to be changed, added or taken away
// (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
