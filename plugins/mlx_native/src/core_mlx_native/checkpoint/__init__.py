"""Tensors of safetensors files as MLX arrays: read for a model, and saved."""
