"""``infer-cli eval``: items of a file asked, marked, reckoned again, compared."""
