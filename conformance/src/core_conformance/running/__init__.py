"""Running checks on a backend, each within limits, and what the results come to."""
