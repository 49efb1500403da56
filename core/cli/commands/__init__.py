"""The commands, a file each, and what one of them alone needs."""
