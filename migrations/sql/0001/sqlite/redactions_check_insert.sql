CREATE TRIGGER redactions_check_insert BEFORE INSERT ON redactions
BEGIN
  SELECT RAISE(ABORT, 'INSERT on redactions is refused: the content is erased already')
  WHERE EXISTS (SELECT 1 FROM redactions WHERE position = NEW.position);
  SELECT RAISE(ABORT, 'INSERT on redactions is refused: the event committed to no content')
  WHERE NOT EXISTS (SELECT 1 FROM events WHERE position = NEW.position AND content_commitment IS NOT NULL);
  SELECT RAISE(ABORT, 'INSERT on redactions is refused: no ContentRedacted event names the position')
  WHERE NOT EXISTS (
    SELECT 1 FROM events AS e, json_each(e.payload, '$.positions') AS named
    WHERE e.position = NEW.event_position AND e.type = 'ContentRedacted' AND named.value = NEW.position
  );
END
