"""What the rest needs of the system: child processes, private folders, safe text on terminals."""
