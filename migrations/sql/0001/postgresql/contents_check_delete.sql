CREATE FUNCTION ledger_contents_check_delete() RETURNS trigger LANGUAGE plpgsql
  -- pg_temp last: a temporary table must not pass for one of ours. Look-ups only: a plan made while
  -- the tables were tiny is kept, and must not scan them once they are large.
  SET search_path = @schema@, pg_temp
  SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
  IF EXISTS (
    SELECT 1 FROM removed AS d
    WHERE (SELECT r.position FROM redactions AS r WHERE r.position = d.position) IS NULL
  ) THEN
    RAISE EXCEPTION 'DELETE on contents is refused: no redaction names it' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER check_delete AFTER DELETE ON contents REFERENCING OLD TABLE AS removed
  FOR EACH STATEMENT EXECUTE FUNCTION ledger_contents_check_delete();
ALTER TABLE contents ENABLE ALWAYS TRIGGER check_delete
