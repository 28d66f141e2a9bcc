-- The keys are looked up because INSERT OR REPLACE would delete their row without a word.
CREATE TRIGGER events_check_insert BEFORE INSERT ON events
BEGIN
  SELECT RAISE(ABORT, 'INSERT on events is refused: the position must be the next one')
  WHERE NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM events);
  SELECT RAISE(ABORT, 'INSERT on events is refused: the event id is taken')
  WHERE EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id);
  SELECT RAISE(ABORT, 'INSERT on events is refused: the version in the run is taken')
  WHERE EXISTS (SELECT 1 FROM events WHERE run_id = NEW.run_id AND run_version = NEW.run_version);
  SELECT RAISE(ABORT, 'INSERT on events is refused: the version in the request is taken')
  WHERE NEW.request_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM events
    WHERE run_id = NEW.run_id AND request_id = NEW.request_id AND request_version = NEW.request_version
  );
END
