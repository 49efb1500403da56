"""The tokenizer of a model directory: its files, and text to token ids and back."""
