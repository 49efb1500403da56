"""Benchmarks of models by the names of llama-bench: how many tokens or prompts a second."""
