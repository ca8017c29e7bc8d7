"""The pages of the console. They render snapshots; whatever takes time happens in threads."""
