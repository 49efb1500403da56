"""What the commands share that ask about rows: read, made prompts, asked in blocks, written."""
