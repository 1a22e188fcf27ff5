-- Times are milliseconds since 1970, UTC. What each column is for is said in
-- the migration of Postgres.
CREATE TABLE IF NOT EXISTS {table} (
  key        TEXT    NOT NULL PRIMARY KEY,
  first_seen INTEGER NOT NULL DEFAULT ({now})
);

ALTER TABLE {table} ADD COLUMN lease_until  INTEGER;
ALTER TABLE {table} ADD COLUMN completed_at INTEGER;
ALTER TABLE {table} ADD COLUMN token        BLOB;
ALTER TABLE {table} ADD COLUMN attempts     INTEGER NOT NULL DEFAULT 1;
ALTER TABLE {table} ADD COLUMN status       INTEGER;
ALTER TABLE {table} ADD COLUMN hold         INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {table} ADD COLUMN prior        TEXT    NOT NULL DEFAULT 'none'
  CHECK (prior IN ('none', 'unknown', 'done'));
ALTER TABLE {table} ADD COLUMN answer       BLOB;
ALTER TABLE {table} ADD COLUMN answer_type  TEXT;

-- By age, for cleanup and the list of events; an adopted table may have texts there.
CREATE INDEX {table_first_seen} ON {table} ({seen});

CREATE INDEX {table_held} ON {table} (key) WHERE hold;
