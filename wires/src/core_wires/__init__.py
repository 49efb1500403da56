"""Requests and answers in the wire formats of other products: OpenAI's and System One's.

A server reads bodies with `batch.READERS`, a job reads lines with `batch.read`; `reading` turns
questions into prompts and labels, and results into answers. docs/wires.md lists the supported and
the rejected fields.
"""
