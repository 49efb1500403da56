"""The worker's side. Nothing here imports `core`, which the worker's Python may not have."""
