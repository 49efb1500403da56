"""``infer-cli bench``: models loaded, measured in turns, and shown."""
