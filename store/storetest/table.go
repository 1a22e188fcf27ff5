package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/store"
)

// What is in the table beside claims: the template's rows, keys of any kind, cleanup, the list of events, the schema.

func templateRow(s *suite) {
	if !s.Template("evt:1") {
		s.Fatal("the template's INSERT did not return the new key")
	}
	s.refused("evt:1", store.Done)
	e := s.state("evt:1", store.Done)
	if e.Attempts != 1 || e.CompletedAt != nil || e.Status != nil {
		s.Errorf("%+v", e)
	}
	if age := time.Since(e.FirstSeen); age < -time.Minute || age > time.Minute {
		s.Errorf("first seen %v ago", age)
	}
}

func templateInsert(s *suite) {
	s.first("evt:1")
	if s.Template("evt:1") {
		s.Error("the template's INSERT returned a key that is claimed")
	}
	s.state("evt:1", store.InFlight)
}

func cleanup(s *suite) {
	const month = 720 * time.Hour
	done := s.first("done")
	s.ok(s.Complete(s.ctx, "done", done, 200))
	s.Age("done", month+time.Hour)
	s.Template("template")
	s.Age("template", month+time.Hour)
	s.first("ran out")
	s.Age("ran out", month+time.Hour)
	// Kept: recent ones, and what is old but was settled or renewed lately.
	fresh := s.first("fresh")
	s.ok(s.Complete(s.ctx, "fresh", fresh, 200))
	s.Template("fresh template")
	late := s.first("completed late")
	s.Age("completed late", month+time.Hour)
	s.ok(s.Complete(s.ctx, "completed late", late, 200))
	live := s.first("live")
	s.Age("live", 2*month)
	s.ok(s.Renew(s.ctx, "live", live))
	s.first("ran out lately")
	s.Age("ran out lately", time.Hour)

	got, err := s.Opened.Cleanup(s.ctx, month)
	s.ok(err)
	if diff := cmp.Diff(store.Cleaned{Deleted: 3, Unsettled: 1}, got); diff != "" {
		s.Error(diff)
	}
	for _, key := range []string{"done", "template", "ran out"} {
		s.gone(key)
	}
	for _, key := range []string{"fresh", "fresh template", "completed late"} {
		s.state(key, store.Done)
	}
	s.state("live", store.InFlight)
	s.state("ran out lately", store.Unknown)
}

func cleanupHeld(s *suite) {
	s.first("evt:1")
	s.Age("evt:1", 2000*time.Hour)
	got, err := s.Opened.Cleanup(s.ctx, time.Hour)
	s.ok(err)
	if got.Deleted != 0 {
		s.Errorf("%+v", got)
	}
	s.state("evt:1", store.Held)
}

func cleanupMany(s *suite) {
	const many = 1100 // more than one batch
	for i := range many {
		if !s.Template(fmt.Sprint("evt:", i)) {
			s.Fatalf("evt:%d was there", i)
		}
	}
	s.Age("", 100*time.Hour)
	s.first("live")
	got, err := s.Opened.Cleanup(s.ctx, time.Hour)
	s.ok(err)
	if got.Deleted != many {
		s.Errorf("%+v", got)
	}
	s.state("live", store.InFlight)
}

func keys(s *suite) {
	for _, key := range []string{
		"evt:'; DROP TABLE processed_events; --", `evt:\`, `evt:{a,"b"}`, "evt:NULL", "NULL", "evt:%s$1", "evt:🧿", "evt: ", "evt:\n\t",
		"evt:\u00c9", "evt:E\u0301", "a/b/evt:1", "EVT:1", "evt:1", "x", "evt:" + strings.Repeat("k", 251),
	} {
		t := s.first(key)
		s.refused(key, store.InFlight)
		s.ok(s.Renew(s.ctx, key, t))
		s.ok(s.Complete(s.ctx, key, t, 200))
		s.refused(key, store.Done)
		if e := s.state(key, store.Done); e.Key != key {
			s.Errorf("%q came back as %q", key, e.Key)
		}
	}
}

func events(s *suite) {
	s.first("in flight")
	s.Age("in flight", 3*time.Second)
	t := s.first("done")
	s.ok(s.Complete(s.ctx, "done", t, 200))
	s.Age("done", 2*time.Second)
	t = s.first("unknown")
	s.ok(s.EndLease(s.ctx, "unknown", t))
	s.Age("unknown", time.Second)
	for _, tt := range []struct {
		state store.State
		limit int
		want  []string
	}{
		{"", 10, []string{"unknown", "done", "in flight"}},
		{"", 2, []string{"unknown", "done"}},
		{store.Done, 10, []string{"done"}},
		{store.InFlight, 10, []string{"in flight"}},
		{store.Unknown, 10, []string{"unknown"}},
		{store.Held, 10, nil},
	} {
		list, err := s.Events(s.ctx, tt.state, tt.limit)
		s.ok(err)
		var got []string
		for _, e := range list {
			got = append(got, e.Key)
			if tt.state != "" && e.State != tt.state {
				s.Errorf("among %s: %+v", tt.state, e)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			s.Errorf("Events(%q, %d):\n%s", tt.state, tt.limit, diff)
		}
	}
	if _, err := s.Events(s.ctx, "lost", 1); err == nil {
		s.Error("a state that is none was accepted")
	}
}

func schema(s *suite) {
	s.ok(s.Ping(s.ctx))
	s.ok(s.CheckSchema(s.ctx))
	s.first("evt:1")
	s.ok(s.Migrate(s.ctx, false))
	s.ok(s.Migrate(s.ctx, true))
	s.state("evt:1", store.InFlight)
	if st := s.Stats(); st.Max < 1 || st.InUse > st.Max {
		s.Errorf("%+v", st)
	}
}

func leaver(s *suite) {
	gone, leave := context.WithCancel(s.ctx)
	leave()
	all(200, func(i int) {
		ctx := s.ctx
		if i%2 == 0 {
			ctx = gone
		}
		_, err := s.Claim(ctx, fmt.Sprint("evt:", i), store.NewToken())
		if i%2 == 1 && err != nil {
			s.Error("one who stayed: ", err)
		}
		if i%2 == 0 && err != nil && !errors.Is(err, context.Canceled) {
			s.Error("one who left: ", err)
		}
	})
}
