"""Contents of a model's files, and the requirements to run them; no weights are read."""
