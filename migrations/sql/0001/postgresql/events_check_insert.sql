-- Positions are dense: the new rows must be one block that begins where the log ended.
CREATE FUNCTION ledger_events_check_insert() RETURNS trigger LANGUAGE plpgsql
  -- pg_temp last: a temporary table must not pass for one of ours. Look-ups only: a plan made while
  -- the tables were tiny is kept, and must not scan them once they are large.
  SET search_path = @schema@, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  low bigint;
  high bigint;
  rows_added bigint;
BEGIN
  SELECT min(position), max(position), count(*) INTO low, high, rows_added FROM added;
  IF rows_added > 0 AND (
    high - low + 1 <> rows_added
    OR low < 1
    OR high <> (SELECT max(position) FROM events)
    OR (low > 1 AND NOT EXISTS (SELECT 1 FROM events WHERE position = low - 1))
  ) THEN
    RAISE EXCEPTION 'INSERT on events is refused: the position must be the next one'
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER check_insert AFTER INSERT ON events REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_events_check_insert();
ALTER TABLE events ENABLE ALWAYS TRIGGER check_insert
