"""What runs in the worker. Nothing here imports `core`: its interpreter may not know it."""
