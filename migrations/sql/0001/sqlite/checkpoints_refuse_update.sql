CREATE TRIGGER checkpoints_refuse_update BEFORE UPDATE ON checkpoints
BEGIN
  SELECT RAISE(ABORT, 'UPDATE on checkpoints is refused: the ledger is append-only');
END
