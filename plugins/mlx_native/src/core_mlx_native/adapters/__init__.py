"""LoRA adapters: layers added to a network and removed from it, and their files."""
