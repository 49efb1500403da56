"""The conformance suite: tells anyone whether a backend keeps the contract of ``core``.

Empty in this version: the distribution holds its name and its place, and has no checks.
"""
