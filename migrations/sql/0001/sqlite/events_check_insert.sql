-- The keys are looked up because INSERT OR REPLACE would delete their row without a word. All in
-- WHEN: that is what every insert pays for. ROLLBACK, not ABORT: so that a statement can be undone by
-- itself, SQLite would copy each page that it touches first.
CREATE TRIGGER events_check_insert BEFORE INSERT ON events
WHEN NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM events)
  OR EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id)
  OR EXISTS (SELECT 1 FROM events WHERE run_id = NEW.run_id AND run_version = NEW.run_version)
  OR NEW.request_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM events
    WHERE run_id = NEW.run_id AND request_id = NEW.request_id AND request_version = NEW.request_version
  )
BEGIN
  SELECT RAISE(ROLLBACK, 'INSERT on events is refused: the position must be the next one')
  WHERE NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM events);
  SELECT RAISE(ROLLBACK, 'INSERT on events is refused: its id, or its version in the run or request, is taken');
END
