-- Tables for the workflows in this folder.

-- What the business step writes: one row for each time that an event was really worked on.
CREATE TABLE IF NOT EXISTS business_log (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workflow      text NOT NULL,
  event_id      text NOT NULL,
  event_key     text,  -- Hookonce-Key; NULL where the workflow is not behind hookonce
  prior_outcome text,  -- Hookonce-Prior-Outcome: 'unknown' if an earlier attempt may have run
  written_at    timestamptz NOT NULL DEFAULT now()
);

-- The claims. Behind hookonce run `hookonce migrate` before this file: it makes the table with all that a claim needs,
-- and the statement below leaves it alone. Made here first, the table is the in-workflow template's, and hookonce will
-- not serve on it until it is told to (README.md, "Moving from the template").
CREATE TABLE IF NOT EXISTS processed_events (
  key        text PRIMARY KEY,
  first_seen timestamptz NOT NULL DEFAULT now()
);
