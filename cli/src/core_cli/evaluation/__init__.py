"""``infer-cli eval``: run, score, recompute and compare evaluations."""
