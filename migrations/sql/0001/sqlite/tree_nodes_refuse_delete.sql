CREATE TRIGGER tree_nodes_refuse_delete BEFORE DELETE ON tree_nodes
BEGIN
  SELECT RAISE(ABORT, 'DELETE on tree_nodes is refused: the ledger is append-only');
END
