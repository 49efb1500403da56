"""OpenAI's wire, as most servers speak it: texts, and what a probe shows besides."""
