"""What makes the record checkable: canonical bytes, the Merkle tree, signed notes, and the verifier."""
