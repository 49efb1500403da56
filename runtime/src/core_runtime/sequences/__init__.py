"""An engine for backends that compute flat batches: tokens of many sequences in one KV cache.

A backend brings a `core_runtime.sequences.session.Session` and subclasses
`core_runtime.sequences.model.SequenceModel`. Needs numpy, which the backend's distribution
requires: the rest of `core_runtime` does without.
"""
