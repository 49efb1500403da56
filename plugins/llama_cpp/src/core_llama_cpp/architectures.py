"""Which architectures can be used: those that the installed llama.cpp has code for, less those
that do not continue a text, or keep no cache of positions.

llama.cpp has no list to ask for; it says "unknown model architecture" to a file that holds
nothing but the name of one.
"""

from __future__ import annotations

import functools
import os
import struct
import tempfile

from core_llama_cpp.header import ModelHeader
from core_llama_cpp.library import errors_said, load_library

_NOT_CAUSAL = frozenset(
    {
        *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "eurobert"),
        *("jina-bert-v2", "jina-bert-v3", "gemma-embedding", "llama-embed"),
        *("t5", "t5encoder", "dream", "llada", "llada-moe", "rnd1"),
        *("eagle3", "dflash", "gemma4-assistant"),  # drafts of another model
        *("wavtokenizer-dec", "qwen3tts", "pockettts"),
    }
)
_HYBRID = frozenset({"deepseek4", "minimax-01"})  # without a key that would tell
_RECURRENT_KEYS = ("ssm", "wkv", "shortconv", "kda")
_UNKNOWN = "unknown model architecture"
_STRING = 8  # GGUF's type number


def architecture_refusal(header: ModelHeader) -> str | None:
    """Why this plugin cannot run a model's architecture; None when it can.

    Raises `BackendUnavailableError` where llama.cpp cannot be used.
    """
    name = header.architecture
    if name in _NOT_CAUSAL or header.metadata.get(f"{name}.attention.causal") is False:
        return f"a model of the architecture {name!r} does not continue a text token by token"
    if is_recurrent(header):
        return (
            f"a model of the architecture {name!r} keeps a recurrent state (state space, RWKV, "
            "linear attention), and this plugin needs a cache of positions"
        )
    if not is_known(name):
        return (
            f"the installed llama.cpp has no code for the architecture {name!r:.80}. A later one "
            "may: pip install --upgrade llama-cpp-python"
        )
    return None


def is_recurrent(header: ModelHeader) -> bool:
    """Whether some of its layers keep a state in place of keys and values."""
    marks = tuple(f"{header.architecture}.{part}." for part in _RECURRENT_KEYS)
    return header.architecture in _HYBRID or any(key.startswith(marks) for key in header.metadata)


@functools.cache
def is_known(architecture: str) -> bool:
    """Whether the installed llama.cpp has code for it. Imports llama_cpp; reads no weights."""
    llama = load_library()
    parameters = llama.llama_model_default_params()
    parameters.vocab_only = True
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file, errors_said() as said:
        file.write(_named_only(architecture))
        file.flush()
        model = llama.llama_model_load_from_file(os.fsencode(file.name), parameters)
        if model:
            llama.llama_model_free(model)
    return not any(_UNKNOWN in line for line in said)


def _named_only(architecture: str) -> bytes:
    """A GGUF file (version 3) with one key and no tensors."""
    key = _text("general.architecture") + struct.pack("<I", _STRING) + _text(architecture)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
