"""The ways in: infer-cli conformance, and pytest."""
