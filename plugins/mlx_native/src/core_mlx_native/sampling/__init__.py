"""Sampling: the repeat penalty, the filters, and the draw of a token from logits."""
