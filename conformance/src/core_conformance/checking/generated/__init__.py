"""Generated texts and sequences of calls, searched for one that a backend gets wrong."""
