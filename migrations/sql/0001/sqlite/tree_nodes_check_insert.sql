CREATE TRIGGER tree_nodes_check_insert BEFORE INSERT ON tree_nodes
WHEN EXISTS (SELECT 1 FROM tree_nodes WHERE level = NEW.level AND node_index = NEW.node_index)
BEGIN
  SELECT RAISE(ABORT, 'INSERT on tree_nodes is refused: the node is there');
END
