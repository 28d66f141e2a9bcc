CREATE TRIGGER tree_nodes_refuse_update BEFORE UPDATE ON tree_nodes
BEGIN
  SELECT RAISE(ABORT, 'UPDATE on tree_nodes is refused: the ledger is append-only');
END
