"""The backends ``llama_cpp`` and ``rocm``: llama.cpp in process, for GGUF files.

Nothing is imported here: the entry points name `core_llama_cpp.backend`.
"""
