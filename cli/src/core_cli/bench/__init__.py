"""Benchmarks of models, with the test names of llama-bench."""
