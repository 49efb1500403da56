"""LoRA adapters: layers beside the network's own, put in place and taken out, and their files."""
