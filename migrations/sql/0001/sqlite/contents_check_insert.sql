CREATE TRIGGER contents_check_insert BEFORE INSERT ON contents
WHEN NOT EXISTS (SELECT 1 FROM events WHERE position = NEW.position AND content_commitment IS NOT NULL)
  OR EXISTS (SELECT 1 FROM redactions WHERE position = NEW.position)
  OR EXISTS (SELECT 1 FROM contents WHERE position = NEW.position)
BEGIN
  SELECT RAISE(ROLLBACK, 'INSERT on contents is refused: the content was erased')
  WHERE EXISTS (SELECT 1 FROM redactions WHERE position = NEW.position);
  SELECT RAISE(ROLLBACK, 'INSERT on contents is refused: the content is there')
  WHERE EXISTS (SELECT 1 FROM contents WHERE position = NEW.position);
  SELECT RAISE(ROLLBACK, 'INSERT on contents is refused: the event committed to no content');
END
