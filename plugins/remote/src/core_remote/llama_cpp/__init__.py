"""The API of llama.cpp's server: token ids, and exact log-probabilities of any token."""
