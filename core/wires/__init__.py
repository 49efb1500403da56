"""Requests of other people's wires in, their answers out: OpenAI's and System One's.

A server reads bodies with `batch.READERS`, a job reads lines with `batch.read`; `reading` makes
prompts and labels of the questions, and answers of what the model says. docs/wires.md tells what is
read and what is refused.
"""
