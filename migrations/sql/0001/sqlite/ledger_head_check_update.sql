CREATE TRIGGER ledger_head_check_update BEFORE UPDATE ON ledger_head
BEGIN
  SELECT RAISE(ABORT, 'UPDATE on ledger_head is refused: the log never shrinks') WHERE NEW.size < OLD.size;
  SELECT RAISE(ABORT, 'UPDATE on ledger_head is refused: origin and format stay')
  WHERE NEW.id IS NOT OLD.id OR NEW.origin IS NOT OLD.origin OR NEW.format IS NOT OLD.format;
END
