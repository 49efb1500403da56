"""System functions: child processes, private folders, safe text on terminals."""
