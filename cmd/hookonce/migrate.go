package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hookonce/hookonce/store"
)

func (p *program) migrateCommand() *cobra.Command {
	var adopt bool
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the events table up to date",
		Long: "Creates the events table, or brings it up to date. A table that hookonce did not make belongs to a workflow\n" +
			"that claims for itself; it is taken over only with --adopt, after the claim step has gone from the workflow:\n" +
			"otherwise the workflow would find hookonce's claim, take its duplicate branch and lose every event.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withStore(c.Context(), func(ctx context.Context, config *StoreConfig, db database) error {
				adopt := adopt || config.AdoptTable
				foreign := errors.Is(db.CheckSchema(ctx), store.ErrForeignTable)
				if err := db.Migrate(ctx, adopt); err != nil {
					return err
				}
				if foreign {
					fmt.Fprintf(p.stdout, "%s is hookonce's now; the rows that it had count as done\n", config.EventsTable)
				}
				fmt.Fprintf(p.stdout, "%s is up to date\n", config.EventsTable)
				return nil
			})
		},
	}
	c.Flags().BoolVar(&adopt, "adopt", false, "take over a table that hookonce did not make; its rows stay and count as done")
	return c
}

func (p *program) cleanupCommand() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Delete the keys that are past RETENTION",
		Long:  "Deletes the keys that are past RETENTION, in small batches. Serving does so by itself every CLEANUP_INTERVAL.",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return p.withTable(c.Context(), func(ctx context.Context, config *StoreConfig, db database) error {
				cleaned, err := db.Cleanup(ctx, config.Retention)
				if err != nil {
					return err
				}
				return o.print(p.stdout, map[string]int{"deleted": cleaned.Deleted, "unsettled": cleaned.Unsettled},
					fmt.Sprintf("deleted %d keys, %d of them never completed", cleaned.Deleted, cleaned.Unsettled))
			})
		},
	}
	o.register(c)
	return c
}
