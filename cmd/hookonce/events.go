package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hookonce/hookonce/store"
)

func (p *program) eventsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "events",
		Short: "Look at events, and decide on them",
		Long: "States: in_flight (the application works on it), done (never runs again), held (whether it ran is unknown,\n" +
			"a person decides), unknown (it may have run; its next delivery runs, and is told so).",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.listCommand(), p.showCommand(),
		p.decideCommand("release", "Give a key back: the next delivery of the event runs, and is told that it may have run",
			"also a done one, or one that is in flight at this moment", "released: the next delivery runs, and is told that it may have run",
			func(ctx context.Context, db database, key string, force bool) error {
				return db.ReleaseEvent(ctx, key, force)
			}),
		p.decideCommand("complete", "Settle a held event: it is done and never runs again",
			"also one that is in flight at this moment", "completed: it never runs again",
			func(ctx context.Context, db database, key string, force bool) error {
				return db.CompleteEvent(ctx, key, force)
			}),
		p.decideCommand("pass", "Let exactly one more delivery of a done event through, for the provider's own Redeliver button",
			"", "passed: its next delivery runs once more",
			func(ctx context.Context, db database, key string, _ bool) error { return db.PassEvent(ctx, key) }))
	return c
}

func (p *program) listCommand() *cobra.Command {
	var o output
	var state string
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List events, the newest first", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			switch store.State(state) {
			case "", store.InFlight, store.Done, store.Held, store.Unknown:
			default:
				return misuse{fmt.Errorf("--state is %q; it is in_flight, done, held or unknown", state)}
			}
			if limit < 1 {
				return misuse{fmt.Errorf("--limit is %d; it has to be 1 or more", limit)}
			}
			return p.withTable(c.Context(), func(ctx context.Context, _ *StoreConfig, db database) error {
				events, err := db.Events(ctx, store.State(state), limit)
				if err != nil {
					return err
				}
				if events == nil {
					events = []store.Event{}
				}
				return o.print(p.stdout, events, eventTable(events))
			})
		},
	}
	o.register(c)
	c.Flags().StringVar(&state, "state", "", "only these: in_flight, done, held or unknown")
	c.Flags().IntVar(&limit, "limit", 50, "at most so many")
	return c
}

func (p *program) showCommand() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use: "show KEY", Short: "Show one event", Args: oneKey,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return p.withTable(c.Context(), func(ctx context.Context, _ *StoreConfig, db database) error {
				event, err := db.Event(ctx, args[0])
				if err != nil {
					return explain(args[0], err)
				}
				return o.print(p.stdout, event, eventTable([]store.Event{event}))
			})
		},
	}
	o.register(c)
	return c
}

func (p *program) decideCommand(verb, short, force, said string,
	decide func(ctx context.Context, db database, key string, force bool) error) *cobra.Command {
	var forced bool
	c := &cobra.Command{
		Use: verb + " KEY", Short: short, Args: oneKey,
		RunE: func(c *cobra.Command, args []string) error {
			return p.withTable(c.Context(), func(ctx context.Context, _ *StoreConfig, db database) error {
				if err := decide(ctx, db, args[0], forced); err != nil {
					return explain(args[0], err)
				}
				fmt.Fprintf(p.stdout, "%s %s\n", args[0], said)
				return nil
			})
		},
	}
	if force != "" {
		c.Flags().BoolVar(&forced, "force", false, force)
	}
	return c
}

// explain puts the key to what the store says of it.
func explain(key string, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%s: no such key; `hookonce events list` shows those that there are", key)
	case errors.Is(err, store.ErrConflict):
		return fmt.Errorf("%s: %w; a done event is let through once more with `events pass`, an unknown or held one is given back with "+
			"`events release` or settled with `events complete`, and --force does either to a live one", key, err)
	}
	return fmt.Errorf("%s: %w", key, err)
}

func eventTable(events []store.Event) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tSTATE\tPRIOR\tFIRST SEEN\tATTEMPTS\tLEASE UNTIL\tCOMPLETED AT\tSTATUS")
	for _, e := range events {
		status := "-"
		if e.Status != nil {
			status = strconv.Itoa(*e.Status)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", e.Key, e.State, e.Prior, e.FirstSeen.Format(time.RFC3339), e.Attempts,
			when(e.LeaseUntil), when(e.CompletedAt), status)
	}
	w.Flush()
	return b.String()
}

func when(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}
