"""The backends ``llama_cpp`` and ``rocm``: llama.cpp in process, for GGUF files.

Nothing is imported here: `core_llama_cpp.backend` is what the entry points name.
"""
