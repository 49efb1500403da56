"""Jobs from a file to a file, which can be resumed after an interruption."""
