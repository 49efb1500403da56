"""The same GGUF model with other quantisations, made by llama.cpp itself.

The source may be quantised already: SmolLM2's is Q4_1, and the safetensors are made of it too. The
result is stored in the cache, and has a few hundred megabytes.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
from pathlib import Path
from typing import Any

from core.system.outputs import cache_root

KINDS = {"F32": "LLAMA_FTYPE_ALL_F32", "BF16": "LLAMA_FTYPE_MOSTLY_BF16",
         "Q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0", "Q4_0": "LLAMA_FTYPE_MOSTLY_Q4_0"}  # fmt: skip


def quantised(source: Path, kind: str) -> Path:
    """Return the file with a quantisation of `KINDS`; it is made if it is missing or older.

    Raises `ImportError` without llama-cpp-python, `OSError` where llama.cpp cannot make it.
    """
    target = cache_root() / "gguf" / f"{source.stem}.{kind}.gguf"
    if target.is_file() and target.stat().st_mtime >= source.stat().st_mtime:
        return target

    library: Any = importlib.import_module("llama_cpp")
    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)  # a line for each tensor
    params = library.llama_model_quantize_default_params()
    params.ftype = getattr(library, KINDS[kind])
    params.allow_requantize = True

    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    names = (str(path).encode() for path in (source, partial))
    failed = library.llama_model_quantize(*names, ctypes.byref(params))
    if failed:
        raise OSError(f"{source}: llama.cpp cannot make a file of {kind} of it (status {failed})")
    partial.replace(target)
    return target
