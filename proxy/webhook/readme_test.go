package webhook

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeHasTheProviderTable: one row a preset, as it is. To write it anew:
// UPDATE_README=1 go test -run README ./proxy/webhook
func TestREADMEHasTheProviderTable(t *testing.T) {
	const file, begin, end = "../../README.md", "<!-- providers -->\n", "<!-- /providers -->\n"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("the README has no %s … %s", begin, end)
	}
	want := strings.TrimSpace(ProviderTable()) + "\n"
	if got == want {
		return
	}
	if os.Getenv("UPDATE_README") == "" {
		t.Fatal("the README's provider table is not that of the presets; run UPDATE_README=1 go test -run README ./proxy/webhook")
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
