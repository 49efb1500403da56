"""The network: one decoder for every family, and the ways to run a prompt through it."""
