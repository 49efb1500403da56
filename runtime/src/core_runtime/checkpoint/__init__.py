"""Model directories: config.json, families, quantisation, and the headers of safetensors files."""
