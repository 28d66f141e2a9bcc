CREATE TRIGGER contents_check_delete BEFORE DELETE ON contents
WHEN NOT EXISTS (SELECT 1 FROM redactions WHERE position = OLD.position)
BEGIN
  SELECT RAISE(ABORT, 'DELETE on contents is refused: no redaction names it');
END
