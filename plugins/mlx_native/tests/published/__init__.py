"""Model directories in the shape in which publishers ship them (README.md)."""
