"""The memory that llama.cpp takes for a model, estimated from the header."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import InvalidModelError
from core.options import LoadConfig
from core_llama_cpp.checkpoint.header import ModelHeader
from core_llama_cpp.ggml import GgmlDevice
from core_runtime.gguf_files import ModelFiles
from core_runtime.machine import available_bytes
from core_runtime.sequences import context
from core_runtime.sequences.context import ContextSize, Estimate

_FLOAT, _HALF = 4, 2
_WIDE_ROWS = 8  # rows of hidden size that one pass holds for each token, at least


def estimate(
    header: ModelHeader, files: ModelFiles, outputs: int, n_ubatch: int, flash: bool
) -> Estimate:
    """Estimate the memory of a model.

    ``outputs`` is the number of rows of logits; llama.cpp has them in its graph and in a copy.
    """
    logits = 2 * outputs * header.vocab_size * _FLOAT
    activations = n_ubatch * header.hidden_size * _FLOAT * _WIDE_ROWS
    # One row of the mask for each token of a pass; without flash attention every head's scores.
    scores = _HALF if flash else _HALF + header.num_heads * _FLOAT
    return Estimate(files.size, logits + activations, header.cell_bytes + n_ubatch * scores)


def free_memory(gpus: Sequence[GgmlDevice], gpu_layers: int) -> int | None:
    """Return the free bytes for a model on these devices; None if unknown.

    With all layers on GPUs only their memory counts, with some of them also the host's.
    """
    if not gpus or gpu_layers == 0:
        return available_bytes()
    on_devices = sum(device.memory_free for device in gpus)
    if gpu_layers < 0:
        return on_devices or None
    host = available_bytes()
    return None if host is None else host + on_devices


def context_size(
    header: ModelHeader, config: LoadConfig, slots: int, needs: Estimate, memory: int | None
) -> ContextSize:
    """Choose the context of a model; raises like `core_runtime.sequences.context.context_size`.

    Raises `core.InvalidModelError` for a header without a context length.
    """
    own = header.context_length
    if not own:
        raise InvalidModelError(
            f"{header.path} has no context length "
            f"({header.architecture}.context_length). Convert the model again."
        )
    return context.context_size(own, str(header.path), config, slots, needs, memory)
