CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events
BEGIN
  SELECT RAISE(ABORT, 'UPDATE on events is refused: the ledger is append-only');
END
