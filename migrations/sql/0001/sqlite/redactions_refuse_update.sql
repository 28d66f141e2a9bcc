CREATE TRIGGER redactions_refuse_update BEFORE UPDATE ON redactions
BEGIN
  SELECT RAISE(ABORT, 'UPDATE on redactions is refused: the ledger is append-only');
END
