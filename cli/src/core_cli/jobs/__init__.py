"""Jobs from a file to a file, which resume where they were interrupted."""
