"""Helpers for backends: option checks, clocks, labels, streams."""
