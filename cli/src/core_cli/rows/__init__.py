"""Row handling of the commands: prompts, blocks, model calls and results."""
