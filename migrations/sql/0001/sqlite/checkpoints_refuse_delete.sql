CREATE TRIGGER checkpoints_refuse_delete BEFORE DELETE ON checkpoints
BEGIN
  SELECT RAISE(ABORT, 'DELETE on checkpoints is refused: the ledger is append-only');
END
