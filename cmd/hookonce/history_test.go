package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// history is what an application and a provider have seen of events, whatever
// happened in between. Times are counted from a common start.
type history struct {
	mu   sync.Mutex
	runs map[string][]*appRun
	acks map[string][]time.Duration // when a sender was answered 2xx

	// When the completion of an event was not recorded, because the database
	// was out of reach. The contract lets the application's answer stand then,
	// and such an event may meanwhile run again elsewhere, told so.
	unrecorded map[string][]span
}

type span struct{ from, to time.Duration }

// appRun is one request for an event that reached the application.
type appRun struct {
	began, ended time.Duration // ended 0: it has not
	status       int           // that the application answered; 0: none
	told         string        // Hookonce-Prior-Outcome
}

func (r *appRun) String() string {
	return fmt.Sprintf("[%v to %v, answered %d, told %q]", r.began, r.ended, r.status, r.told)
}

func (r *appRun) accepted() bool { return r.status/100 == 2 }

// refused: the application itself has said no, before that moment.
func (r *appRun) refused(before time.Duration) bool {
	return r.ended > 0 && r.ended <= before && r.status != 0 && !r.accepted()
}

func newHistory() *history {
	return &history{runs: map[string][]*appRun{}, acks: map[string][]time.Duration{}}
}

// violations are the promises that the history breaks.
func (h *history) violations() (found []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for event, runs := range h.runs {
		found = append(found, broken(event, runs, h.acks[event], h.unrecorded[event])...)
	}
	for event, acks := range h.acks {
		if h.runs[event] == nil {
			found = append(found, broken(event, nil, acks, nil)...)
		}
	}
	slices.Sort(found)
	return found
}

// broken says which promises the runs and acknowledgements of one event break.
func broken(event string, runs []*appRun, acks []time.Duration, unrecorded []span) (found []string) {
	breaks := func(promise string) {
		found = append(found, fmt.Sprintf("%s: %s; runs: %v, acknowledged: %v", event, promise, runs, acks))
	}
	slices.SortFunc(runs, func(a, b *appRun) int { return int(a.began - b.began) })
	if len(acks) > 0 {
		first := slices.Min(acks)
		if !slices.ContainsFunc(runs, func(r *appRun) bool { return r.accepted() && r.ended > 0 && r.ended <= first }) {
			breaks("lost: acknowledged, but no run had been accepted by then")
		}
		if slices.ContainsFunc(runs, func(r *appRun) bool {
			return r.began > first && !slices.ContainsFunc(unrecorded, func(s span) bool { return s.from <= r.began && r.began <= s.to })
		}) {
			breaks("run again: a run after the acknowledgement")
		}
	}
	for i, r := range runs {
		earlier := runs[:i]
		switch {
		case r.told == "unknown":
		case r.told != "none":
			breaks("told neither none nor unknown")
		case slices.ContainsFunc(earlier, func(e *appRun) bool { return e.ended == 0 || e.ended > r.began }):
			breaks("two at once: a run beside an earlier one was told none")
		case slices.ContainsFunc(earlier, func(e *appRun) bool { return !e.refused(r.began) }):
			breaks("untold: a run after one that may have run was told none")
		}
	}
	return found
}

func TestHistoryIsChecked(t *testing.T) {
	const ms = time.Millisecond
	run := func(began, ended time.Duration, status int, told string) *appRun {
		return &appRun{began * ms, ended * ms, status, told}
	}
	unrecorded := newHistory()
	unrecorded.unrecorded = map[string][]span{"e": {{2 * ms, 4 * ms}}}
	unrecorded.acks["e"] = []time.Duration{3 * ms}
	unrecorded.runs["e"] = []*appRun{run(1, 2, 200, "none"), run(4, 5, 200, "unknown")}
	if found := unrecorded.violations(); found != nil {
		t.Errorf("unrecorded and told: %v", found)
	}
	unrecorded.runs["e"][1].told = "none"
	if found := unrecorded.violations(); len(found) != 1 {
		t.Errorf("unrecorded and untold: %v", found)
	}
	unrecorded.runs["e"][1] = run(5, 6, 200, "unknown")
	if found := unrecorded.violations(); len(found) != 1 {
		t.Errorf("recorded long ago: %v", found)
	}
	for _, c := range []struct {
		name string
		runs []*appRun
		acks []time.Duration
		want string // the beginning of the violation; "": none
	}{
		{"run once, acknowledged", []*appRun{run(1, 2, 200, "none")}, []time.Duration{3}, ""},
		{"acknowledged twice", []*appRun{run(1, 2, 200, "none")}, []time.Duration{3, 9}, ""},
		{"never acknowledged, never run", nil, nil, ""},
		{"never sent, told unknown", []*appRun{run(1, 2, 200, "unknown")}, []time.Duration{3}, ""},
		{"refused, then accepted", []*appRun{run(1, 2, 500, "none"), run(3, 4, 200, "none")}, []time.Duration{5}, ""},
		{"refused, not released, then accepted", []*appRun{run(1, 2, 500, "none"), run(3, 4, 200, "unknown")}, []time.Duration{5}, ""},
		{"no answer, then told", []*appRun{run(1, 2, 0, "none"), run(3, 4, 200, "unknown")}, []time.Duration{5}, ""},
		{"accepted unseen, then told", []*appRun{run(1, 2, 200, "none"), run(3, 4, 200, "unknown")}, []time.Duration{5}, ""},
		{"beside each other, told", []*appRun{run(1, 9, 200, "none"), run(3, 4, 200, "unknown")}, []time.Duration{5}, ""},
		{"in any order", []*appRun{run(3, 4, 200, "none"), run(1, 2, 500, "none")}, []time.Duration{5}, ""},

		{"acknowledged, never run", nil, []time.Duration{3}, "lost"},
		{"acknowledged, refused", []*appRun{run(1, 2, 500, "none")}, []time.Duration{3}, "lost"},
		{"acknowledged, no answer", []*appRun{run(1, 2, 0, "none")}, []time.Duration{3}, "lost"},
		{"acknowledged too early", []*appRun{run(1, 5, 200, "none")}, []time.Duration{3}, "lost"},
		{"acknowledged, still running", []*appRun{run(1, 0, 200, "none")}, []time.Duration{3}, "lost"},
		{"run after the acknowledgement", []*appRun{run(1, 2, 200, "none"), run(4, 5, 200, "unknown")}, []time.Duration{3}, "run again"},
		{"accepted unseen, then untold", []*appRun{run(1, 2, 200, "none"), run(3, 4, 200, "none")}, []time.Duration{5}, "untold"},
		{"no answer, then untold", []*appRun{run(1, 2, 0, "none"), run(3, 4, 200, "none")}, []time.Duration{5}, "untold"},
		{"no answer, then told, then untold", []*appRun{run(1, 2, 0, "none"), run(3, 4, 500, "unknown"), run(5, 6, 200, "none")}, []time.Duration{7}, "untold"},
		{"beside each other, untold", []*appRun{run(1, 4, 500, "none"), run(3, 5, 200, "none")}, []time.Duration{6}, "two at once"},
		{"beside one without end", []*appRun{run(1, 0, 0, "none"), run(3, 5, 200, "none")}, []time.Duration{6}, "two at once"},
		{"not told at all", []*appRun{run(1, 2, 200, "")}, []time.Duration{3}, "told neither"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHistory()
			if c.runs != nil {
				h.runs["e"] = c.runs
			}
			for _, at := range c.acks {
				h.acks["e"] = append(h.acks["e"], at*ms)
			}
			found := h.violations()
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("violations: %v", found)
			case c.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], "e: "+c.want)):
				t.Errorf("violations: %v, want %q", found, c.want)
			}
		})
	}
}
