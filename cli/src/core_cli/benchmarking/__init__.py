"""``infer-cli bench``: load models, measure them in turns, show the results."""
