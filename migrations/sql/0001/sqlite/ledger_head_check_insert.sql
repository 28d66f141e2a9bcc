CREATE TRIGGER ledger_head_check_insert BEFORE INSERT ON ledger_head
WHEN EXISTS (SELECT 1 FROM ledger_head)
BEGIN
  SELECT RAISE(ABORT, 'INSERT on ledger_head is refused: it has one row');
END
