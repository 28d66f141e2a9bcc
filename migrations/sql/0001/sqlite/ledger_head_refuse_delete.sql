CREATE TRIGGER ledger_head_refuse_delete BEFORE DELETE ON ledger_head
BEGIN
  SELECT RAISE(ABORT, 'DELETE on ledger_head is refused: the ledger is append-only');
END
