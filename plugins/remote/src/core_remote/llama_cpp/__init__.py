"""The wire of llama.cpp's own server: token ids, and exact log-probabilities of any token."""
