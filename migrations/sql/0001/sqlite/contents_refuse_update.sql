CREATE TRIGGER contents_refuse_update BEFORE UPDATE ON contents
BEGIN
  SELECT RAISE(ABORT, 'UPDATE on contents is refused: the ledger is append-only');
END
