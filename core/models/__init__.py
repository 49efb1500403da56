"""Models on this machine: their files, their headers, and the places where people keep them."""
