"""LoRA training: examples, their order, and the training steps."""
