"""One llama.cpp model with its one context: opening, decoding, the memory of sequences, freeing.

A context belongs to one thread at a time: whoever holds a session calls it from one thread.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from core_llama_cpp.batch import Batch
from core_llama_cpp.library import load_library
from core_llama_cpp.settings import Settings

Logits = npt.NDArray[np.float32]

_END = -1  # as a position: open to that side
_ROPE_NONE = -1
_NO_SLOT, _ABORTED = 1, 2  # of llama_decode


class DecodeError(RuntimeError):
    """llama.cpp did not compute a batch; the cache may hold a part of it."""


class NoCellsError(DecodeError):
    """The cache has no cells for a batch; nothing of it was computed."""


class Session:
    """Handles of llama.cpp, freed by `close`. ``lib`` is the module ``llama_cpp``.

    ``cells``: positions of the cache; ``n_batch``: tokens that one `decode` takes.
    """

    def __init__(self, lib: ModuleType, model: Any, context: Any, settings: Settings) -> None:
        self.lib, self.settings = lib, settings
        self._model, self._context = model, context
        self._memory = lib.llama_get_memory(context)
        self._adapter: Any = None
        self.cells = int(lib.llama_n_ctx(context))
        self.n_batch = int(lib.llama_n_batch(context))  # at most the cells; more tokens abort
        self.vocab = lib.llama_model_get_vocab(model)
        self.weight_bytes = int(lib.llama_model_size(model))
        self.vocab_size = int(lib.llama_vocab_n_tokens(self.vocab))

    @classmethod
    def open(cls, path: Path, settings: Settings) -> Session:
        """Read the weights and allocate the cache.

        Raises RuntimeError where llama.cpp refuses; why, it says in its log.
        """
        lib = load_library()
        model = _model(lib, path, settings)
        context = lib.llama_init_from_model(model, _context_params(lib, settings))
        if not context:
            lib.llama_model_free(model)
            raise RuntimeError("llama.cpp could not make a context")
        session = cls(lib, model, context, settings)
        if settings.adapter is not None:
            session._adapt(settings.adapter)
        return session

    @property
    def closed(self) -> bool:
        """Whether everything was freed."""
        return self._context is None

    @property
    def rotates(self) -> bool:
        """Whether the oldest positions of a sequence can be dropped while it goes on.

        Positions keep counting, so they must be relative; a recurrent state forgets nothing.
        """
        lib = self.lib
        recurrent = lib.llama_model_is_recurrent(self._model)
        recurrent = recurrent or lib.llama_model_is_hybrid(self._model)
        return not recurrent and lib.llama_model_rope_type(self._model) != _ROPE_NONE

    @property
    def chat_template(self) -> str | None:
        """The template that the file holds."""
        found = self.lib.llama_model_chat_template(self._model, None)
        return found.decode(errors="replace") if found else None

    def new_batch(self) -> Batch:
        """An empty batch of the size that one `decode` takes."""
        return Batch(self.lib, self.n_batch, self.settings.n_outputs_max)

    def decode(self, batch: Batch) -> None:
        """Compute a batch. Raises `NoCellsError`, `DecodeError`."""
        code = self.lib.llama_decode(self._context, batch.filled())
        if code == 0:
            return
        if code == _NO_SLOT:
            raise NoCellsError("llama.cpp found no free cells in its cache")
        what = "was aborted" if code == _ABORTED else "failed"
        raise DecodeError(f"llama_decode {what} with the code {code}")

    def logits(self, index: int) -> Logits:
        """The logits [vocab_size] of the batch's token ``index``, in llama.cpp's own memory.

        Good until the next `decode`. Raises `DecodeError` where none were asked for.
        """
        pointer = self.lib.llama_get_logits_ith(self._context, index)
        if not pointer:
            raise DecodeError(f"llama.cpp has no logits for the batch's token {index}")
        return np.ctypeslib.as_array(pointer, (self.vocab_size,))

    def copy(self, source: int, target: int) -> None:
        """Let a sequence begin with all that another one holds: it shares the cells."""
        self.lib.llama_memory_seq_cp(self._memory, source, target, _END, _END)

    def drop(self, sequence: int, start: int = _END, end: int = _END) -> None:
        """Forget a sequence's positions from ``start`` to before ``end``; all by default."""
        self.lib.llama_memory_seq_rm(self._memory, sequence, start, end)

    def clear(self) -> None:
        """Forget every sequence."""
        self.lib.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Free everything. Twice is fine."""
        if self._context is None:
            return
        context, self._context = self._context, None
        self.lib.llama_free(context)
        self.lib.llama_model_free(self._model)  # its adapters go with it
        self._model = self.vocab = self._memory = self._adapter = None

    def _adapt(self, path: Path) -> None:
        lib = self.lib
        self._adapter = lib.llama_adapter_lora_init(self._model, bytes(path))
        adapters, scales = (type(self._adapter) * 1)(self._adapter), (ctypes.c_float * 1)(1.0)
        if not self._adapter or lib.llama_set_adapters_lora(self._context, adapters, 1, scales):
            self.close()
            raise RuntimeError(f"llama.cpp could not use the adapter {path}")


def _model(lib: ModuleType, path: Path, settings: Settings) -> Any:
    params = lib.llama_model_default_params()
    params.n_gpu_layers = settings.gpu_layers
    none = (ctypes.c_void_p * 1)(None)  # a list of devices, empty: kept until the load is done
    if not settings.offload:
        params.devices = ctypes.cast(none, ctypes.c_void_p)
        # Weights in another order would be multiplied by other kernels for one row than for many.
        params.use_extra_bufts = False
    model = lib.llama_model_load_from_file(bytes(path), params)
    if not model:
        raise RuntimeError("llama.cpp could not load the model")
    return model


def _context_params(lib: ModuleType, settings: Settings) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_seq_max = settings.n_ctx, settings.n_seq_max
    params.n_batch, params.n_ubatch = settings.n_batch, settings.n_ubatch
    params.n_outputs_max = settings.n_outputs_max
    params.n_threads = params.n_threads_batch = settings.n_threads
    params.flash_attn_type = _flash(lib, settings)
    params.offload_kqv = params.op_offload = settings.offload
    params.kv_unified = True  # one pool of cells, whose sequences can share a beginning
    params.swa_full = True  # else a window's cells are counted, and run out, by themselves
    params.no_perf = True
    return params


def _flash(lib: ModuleType, settings: Settings) -> int:
    asked = settings.flash_attn
    if asked is None and settings.offload:
        return int(lib.LLAMA_FLASH_ATTN_TYPE_AUTO)
    if asked is False:
        return int(lib.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    # On a CPU it adds cell after cell and leaves out what a row may not see. So a row's sum does
    # not depend on where its cells are; the other way's does, and the last bits with it.
    return int(lib.LLAMA_FLASH_ATTN_TYPE_ENABLED)
