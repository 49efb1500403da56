"""The backend ``mlx_lm``: a subprocess that runs mlx-lm, spoken to in JSON lines.

Empty in this version: the distribution holds its name and its place, and registers no backend.
"""
