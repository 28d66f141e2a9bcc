CREATE FUNCTION ledger_redactions_check_insert() RETURNS trigger LANGUAGE plpgsql
  -- pg_temp last: a temporary table must not pass for one of ours. Look-ups only: a plan made while
  -- the tables were tiny is kept, and must not scan them once they are large.
  SET search_path = @schema@, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
  IF EXISTS (
    SELECT 1 FROM added AS a
    WHERE coalesce((SELECT e.content_commitment IS NULL FROM events AS e WHERE e.position = a.position), true)
  ) THEN
    RAISE EXCEPTION 'INSERT on redactions is refused: the event committed to no content'
      USING ERRCODE = 'restrict_violation';
  END IF;
  -- Each event's list is taken apart once, not once a row.
  IF EXISTS (
    SELECT a.event_position, a.position FROM added AS a
    EXCEPT
    SELECT e.position, named.position::bigint
    FROM (SELECT DISTINCT event_position FROM added) AS said
    JOIN events AS e ON e.position = said.event_position AND e.type = 'ContentRedacted'
    CROSS JOIN LATERAL jsonb_array_elements_text(e.payload::jsonb -> 'positions') AS named (position)
  ) THEN
    RAISE EXCEPTION 'INSERT on redactions is refused: no ContentRedacted event names the position'
      USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER check_insert AFTER INSERT ON redactions REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_redactions_check_insert();
ALTER TABLE redactions ENABLE ALWAYS TRIGGER check_insert
