"""Tasks on the command line: used by ``classify --task``, made by ``calibrate``."""
