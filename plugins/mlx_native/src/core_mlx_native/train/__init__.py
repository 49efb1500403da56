"""Training a LoRA adapter: what is learned, in what order, and the steps that learn it."""
