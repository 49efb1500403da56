"""The ways to make MLX fast on a CPU: a real BLAS, its threads, lanes, and numpy."""
