"""From prompts to tokens: the interface of tokenizers, labels' tokens, and special tokens."""
