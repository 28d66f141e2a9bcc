CREATE TRIGGER checkpoints_check_insert BEFORE INSERT ON checkpoints
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE size = NEW.size)
BEGIN
  SELECT RAISE(ABORT, 'INSERT on checkpoints is refused: there is one of that size');
END
