"""Chat templates of models, which are untrusted programs: rendered in a process with limits."""
