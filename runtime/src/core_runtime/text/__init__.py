"""From prompts to tokens: what a model's tokenizer is asked, and what is checked of it."""
