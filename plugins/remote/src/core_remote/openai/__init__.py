"""OpenAI's API, as most servers have it: texts, and features that a probe shows."""
