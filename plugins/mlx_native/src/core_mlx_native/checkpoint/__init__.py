"""Model directories read into plain tensors: config.json, safetensors, families, quantisation."""
