CREATE TRIGGER redactions_refuse_delete BEFORE DELETE ON redactions
BEGIN
  SELECT RAISE(ABORT, 'DELETE on redactions is refused: the ledger is append-only');
END
