"""Text generation: the engine, its rows, and their keys and values."""
