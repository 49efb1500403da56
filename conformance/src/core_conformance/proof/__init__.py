"""Proof that the suite bites: the registry of saboteurs, and the run of the suite on each."""
