"""Storage of tables: a local folder or a store that the workers share, behind one set of operations."""
