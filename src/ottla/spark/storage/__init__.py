"""Where tables are: a folder of this machine or of a store that the workers share, behind one set of operations."""
