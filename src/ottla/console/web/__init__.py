"""The pages of the console. They render snapshots; slow work runs in threads."""
