"""GGUF files as transformers has models: config, tokenizer and tensors, without a conversion."""
