-- The table of the n8n template: key, and when it was first seen.
CREATE TABLE IF NOT EXISTS {table} (
  key        text PRIMARY KEY,
  first_seen timestamptz NOT NULL DEFAULT now()
);

-- What a claim needs. All with defaults, so that the template's own INSERT of
-- (key) still works; a row without a lease is a completed event.
ALTER TABLE {table}
  ADD COLUMN lease_until  timestamptz,                   -- NULL: done
  ADD COLUMN completed_at timestamptz,                   -- retention counts from here; NULL: the template's row
  ADD COLUMN token        uuid,                          -- the fencing token; NULL: the claim has been settled
  ADD COLUMN attempts     integer NOT NULL DEFAULT 1,
  ADD COLUMN status       integer,                       -- of the upstream's answer
  ADD COLUMN hold         boolean NOT NULL DEFAULT false, -- no takeover once the lease has ended: a person decides
  ADD COLUMN prior        text    NOT NULL DEFAULT 'none'
    CHECK (prior IN ('none', 'unknown', 'done')),        -- what is known of the attempts before this one
  ADD COLUMN answer       bytea,                         -- the upstream's answer, where WEBHOOK_DUPLICATE=replay
  ADD COLUMN answer_type  text;                          -- keeps it; else both stay NULL and take no room

-- Cleanup and the list of events go by age. Nothing that a settlement changes
-- is indexed (nor in a predicate, but for hold, which only ON_UNKNOWN=hold ever
-- sets): so completing is a heap-only update, which writes to no index.
CREATE INDEX ON {table} (first_seen);

-- The events that wait for a person are counted all the time.
CREATE INDEX ON {table} (key) WHERE hold;

ALTER TABLE {table} SET (
  -- Each row is inserted and, moments later, updated once: room for the new
  -- versions on the same page keeps those updates heap-only. Measured: 99 % of
  -- them with 16 deliveries at once, 52 % with 128. With 50 it is all of them
  -- there too, for 1.4 times the table and 0.8 times the write-ahead log: set
  -- that where the disk is not what is scarce.
  fillfactor = 85,
  -- Cleanup deletes by the day: 20 % of a month's keys (the default) is too
  -- late to make the room of what it deleted usable again.
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02
);
