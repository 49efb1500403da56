"""The backend ``mlx_lm``: a subprocess that runs mlx-lm, with a protocol of JSON lines.

Users reach it through ``core.load_model(path, backend="mlx_lm")``. This module imports nothing: the
worker imports it first, and its interpreter may have neither `core` nor this distribution.
"""
