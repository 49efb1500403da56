"""Effects of options on draws: tables of options, the oracle that recomputes draws, counts."""
