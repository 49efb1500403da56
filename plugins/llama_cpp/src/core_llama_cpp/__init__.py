"""The backends ``llama_cpp`` and ``rocm``: llama.cpp in process, for GGUF files.

Empty in this version: the distribution holds its name and its place, and registers no backend.
"""
