"""Models on this machine: their files, their headers, and their usual stores."""
