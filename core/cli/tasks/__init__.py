"""Tasks on the command line: asked by ``classify --task``, made by ``calibrate``."""
