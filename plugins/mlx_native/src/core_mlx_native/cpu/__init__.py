"""Optimisations for MLX on a CPU: a fast BLAS, its threads, per-core lanes, and numpy."""
