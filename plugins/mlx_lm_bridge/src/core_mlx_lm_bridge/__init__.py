"""The backend ``mlx_lm``: a subprocess that runs mlx-lm, spoken to in JSON lines.

Users reach it through ``core.load_model(path, backend="mlx_lm")``. This package imports nothing:
the worker, whose interpreter may know neither `core` nor this distribution, begins with it.
"""
