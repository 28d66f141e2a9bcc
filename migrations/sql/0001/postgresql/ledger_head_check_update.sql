CREATE FUNCTION ledger_head_check_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.size < OLD.size THEN
    RAISE EXCEPTION 'UPDATE on ledger_head is refused: the log never shrinks' USING ERRCODE = 'restrict_violation';
  END IF;
  IF (NEW.id, NEW.origin, NEW.format) IS DISTINCT FROM (OLD.id, OLD.origin, OLD.format) THEN
    RAISE EXCEPTION 'UPDATE on ledger_head is refused: origin and format stay' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER check_update BEFORE UPDATE ON ledger_head
  FOR EACH ROW EXECUTE FUNCTION ledger_head_check_update();
ALTER TABLE ledger_head ENABLE ALWAYS TRIGGER check_update
