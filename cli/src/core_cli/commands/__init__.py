"""The commands, one per file, and modules that only one of them uses."""
