"""A llama.cpp model with its one context: opening, decoding, the memory of sequences, freeing.

A session is opened with numbers that were all decided before.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from core_llama_cpp.library import load_library
from core_runtime.sequences.session import END, DecodeError, InterruptedPassError, Logits, State

MAX_SEQUENCES = 256
"""``LLAMA_MAX_SEQ``: a context cannot hold more sequences."""

_ROPE_NONE = -1
_strlen = (ctypes.CDLL(None) if os.name == "posix" else ctypes.CDLL("ucrtbase")).strlen
_NO_SLOT, _ABORTED = 1, 2  # of llama_decode


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Sizes of one model and its one context; ``n_`` names are llama.cpp's own.

    ``n_ctx``: cells of the KV cache, which all sequences share (``kv_unified``); a multiple of
    256. ``n_seq_max``: sequences that it may hold at once, and rows whose logits one
    ``llama_decode`` may request (``n_outputs_max``; more abort the process). ``n_batch``: tokens
    of one ``llama_decode``; ``n_ubatch``: of one pass through the layers. ``n_threads``: for
    prompts and for decoding. ``gpu_layers``: layers on the GPU, -1 all, 0 none. ``offload``:
    whether the cache and the arithmetic are there, too; without it, no GPU is used. ``adapter``: a
    LoRA adapter in GGUF. ``flash_attn``: None lets llama.cpp choose. ``mapped``: whether weights
    are mapped from their files, not read into memory.
    """

    n_ctx: int
    n_seq_max: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    gpu_layers: int = 0
    offload: bool = False
    adapter: Path | None = None
    flash_attn: bool | None = None
    mapped: bool = True

    @property
    def n_outputs_max(self) -> int:
        """The rows of logits of one batch, which avoids a buffer of ``n_ctx`` by vocabulary."""
        return self.n_seq_max


class LlamaBatch:
    """A `core_runtime.sequences.session.Batch` in numpy arrays.

    ``tokens``: the most that one ``llama_decode`` takes.
    """

    def __init__(self, lib: ModuleType, tokens: int) -> None:
        self._lib = lib
        self._ids = np.zeros(tokens, np.int32)
        self._positions = np.zeros(tokens, np.int32)
        self._sequences = np.zeros(tokens, np.int32)
        self._wanted = np.zeros(tokens, np.int8)
        self._counts = np.ones(tokens, np.int32)  # sequences that a token belongs to
        # For each token the address of its list of sequences, which has one entry.
        first, step = self._sequences.ctypes.data, self._sequences.itemsize
        self._lists = first + step * np.arange(tokens, dtype=np.uintp)
        self.clear()

    def clear(self) -> None:
        """Empty the batch."""
        self._size = 0

    def add(self, ids: Sequence[int], position: int, sequence: int, reads: int = 0) -> int:
        """Add consecutive tokens, the first at ``position``; the last ``reads`` are read.

        Returns the index of the first token whose logits are read, or would be.
        """
        start, end = self._size, self._size + len(ids)
        self._ids[start:end] = ids
        self._positions[start:end] = np.arange(position, position + len(ids))
        self._sequences[start:end] = sequence
        self._wanted[start:end] = 0
        self._wanted[end - reads : end] = 1
        self._size = end
        return end - reads

    def filled(self) -> Any:
        """Return the C structure, valid while this object exists and is not changed."""
        lib = self._lib
        return lib.llama_batch(
            n_tokens=self._size,
            token=_pointer(self._ids, lib.llama_token),
            pos=_pointer(self._positions, lib.llama_pos),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=ctypes.cast(
                self._lists.ctypes.data, ctypes.POINTER(ctypes.POINTER(lib.llama_seq_id))
            ),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )


def _pointer(values: npt.NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(values.ctypes.data, ctypes.POINTER(kind))


class LlamaSession:
    """Handles of llama.cpp, freed by `close`: a `core_runtime.sequences.session.Session`.

    ``lib`` is the module ``llama_cpp``.
    """

    def __init__(
        self, lib: ModuleType, model: Any, context: Any, settings: SessionSettings
    ) -> None:
        self.lib, self.settings = lib, settings
        self._model, self._context = model, context
        self._memory = lib.llama_get_memory(context)
        self._adapter: Any = None

        # ggml polls it between two operations; empty until `interrupt`. C's strlen reads it: a
        # Python function would wait for the interpreter lock a thousand times per pass.
        self._stop = (ctypes.c_char * 2)()
        self._computes = False
        look = lib.ggml_abort_callback(ctypes.cast(_strlen, ctypes.c_void_p).value)
        lib.llama_set_abort_callback(context, look, ctypes.addressof(self._stop))

        self.cells = int(lib.llama_n_ctx(context))
        self.n_batch = int(lib.llama_n_batch(context))  # at most the cells; more tokens abort
        self.n_seq_max, self.n_ubatch = settings.n_seq_max, settings.n_ubatch
        self.n_outputs_max = settings.n_outputs_max
        self.caches_lone_rows_only = settings.offload  # from a GPU: a copy a cell
        self.vocab = lib.llama_model_get_vocab(model)
        self.weight_bytes = int(lib.llama_model_size(model))
        self.vocab_size = int(lib.llama_vocab_n_tokens(self.vocab))
        self._hidden_size = int(lib.llama_model_n_embd_out(model))
        self._window = int(lib.llama_model_n_swa(model))  # 0: every layer sees everything
        self._suppressed = _suppressed(lib, self.vocab)

    @classmethod
    def open(cls, path: Path, settings: SessionSettings, stop: threading.Event) -> LlamaSession:
        """Read the weights and allocate the cache; ``stop`` ends the reading.

        Raises RuntimeError if llama.cpp refuses; the reason is in its log.
        """
        lib = load_library()
        model = _model(lib, path, settings, stop)
        context = lib.llama_init_from_model(model, _context_params(lib, settings))
        if not context:
            lib.llama_model_free(model)
            raise RuntimeError("llama.cpp could not create a context")
        session = cls(lib, model, context, settings)
        if settings.adapter is not None:
            session._adapt(settings.adapter)
        return session

    @property
    def rotates(self) -> bool:
        """True if the oldest positions of a sequence can be dropped while it continues.

        Positions are not renumbered, so they must be relative; a recurrent state cannot drop any.
        """
        lib = self.lib
        recurrent = lib.llama_model_is_recurrent(self._model)
        recurrent = recurrent or lib.llama_model_is_hybrid(self._model)
        return not recurrent and lib.llama_model_rope_type(self._model) != _ROPE_NONE

    def new_batch(self) -> LlamaBatch:
        """Return an empty batch of the size that one `decode` takes."""
        return LlamaBatch(self.lib, self.n_batch)

    def decode(self, batch: LlamaBatch) -> None:
        """Compute a batch. Raises `InterruptedPassError`, `DecodeError`."""
        self._computes = True
        try:
            code = self.lib.llama_decode(self._context, batch.filled())
        finally:
            self._computes = False
        if code == 0:
            return
        if code == _NO_SLOT:
            raise DecodeError("llama.cpp found no free cells in its cache")
        if code == _ABORTED:
            self._stop[0] = b"\0"
            raise InterruptedPassError("llama_decode was interrupted")
        raise DecodeError(f"llama_decode failed with the code {code}")

    @property
    def hidden_layers(self) -> Sequence[int]:
        """The last layer: llama.cpp returns no other."""
        return (int(self.lib.llama_model_n_layer(self._model)),)

    def decode_hidden(self, batch: LlamaBatch, layers: Sequence[int]) -> None:
        """Decode for `hidden`; llama.cpp then returns the state of every token of a batch."""
        self.lib.llama_set_embeddings(self._context, True)
        try:
            self.decode(batch)
        finally:
            self.lib.llama_set_embeddings(self._context, False)

    def interrupt(self) -> None:
        """End the running pass; on a CPU. From any thread.

        A late interrupt ends the next pass, which its owner then runs again.
        """
        if self._computes:
            self._stop[0] = b"\1"

    def logits(self, index: int) -> Logits:
        """Return the logits [vocab_size] of the batch's token ``index``, in llama.cpp's memory.

        Tokens that the file suppresses have -infinity, as in llama.cpp's samplers. Valid until the
        next `decode`. Raises `DecodeError` if they were not requested.
        """
        pointer = self.lib.llama_get_logits_ith(self._context, index)
        if not pointer:
            raise DecodeError(f"llama.cpp has no logits for the batch's token {index}")
        row = np.ctypeslib.as_array(pointer, (self.vocab_size,))
        if len(self._suppressed):
            row[self._suppressed] = -np.inf
        return row

    def hidden(self, index: int) -> Logits:
        """Return the hidden state [hidden_size] at ``index``, the input of the LM head.

        Valid as long as `logits`.
        """
        pointer = self.lib.llama_get_embeddings_ith(self._context, index)
        if not pointer:
            raise DecodeError(f"llama.cpp has no hidden state for the batch's token {index}")
        return np.ctypeslib.as_array(pointer, (self._hidden_size,))

    def copy(self, source: int, target: int) -> None:
        """Let a sequence begin with all tokens of another one, sharing the cells."""
        self.lib.llama_memory_seq_cp(self._memory, source, target, END, END)

    def drop(self, sequence: int, start: int = END, end: int = END) -> None:
        """Forget a sequence's positions from ``start`` to before ``end``; all by default."""
        self.lib.llama_memory_seq_rm(self._memory, sequence, start, end)

    def end(self, sequence: int) -> int:
        """Return the position after the last one that a sequence holds.

        0 for an empty sequence.
        """
        return int(self.lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def exceeds_window(self, tokens: int) -> bool:
        """Return True if layers have an attention window that is shorter than ``tokens``."""
        return 0 < self._window < tokens

    def state_bytes(self, sequence: int) -> int:
        """Return the size of `state`."""
        return int(self.lib.llama_state_seq_get_size(self._context, sequence))

    def state(self, sequence: int) -> State:
        """Return a copy of a sequence's keys and values; layers with a window have the last one."""
        state = np.empty(self.state_bytes(sequence), np.uint8)
        pointer = _pointer(state, ctypes.c_uint8)
        self.lib.llama_state_seq_get_data(self._context, pointer, state.size, sequence)
        return state

    def restore(self, state: State, sequence: int) -> bool:
        """Restore a `state` into an empty sequence. Returns False if llama.cpp has no room."""
        pointer = _pointer(state, ctypes.c_uint8)
        lib = self.lib
        return bool(lib.llama_state_seq_set_data(self._context, pointer, state.size, sequence))

    def close(self) -> None:
        """Free everything. May be called twice."""
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


def _suppressed(lib: ModuleType, vocab: Any) -> npt.NDArray[np.int32]:
    """Return the ids under ``tokenizer.ggml.suppress_tokens``, which must not be generated."""
    count = ctypes.c_int32()
    ids = lib.llama_vocab_get_suppress_tokens(vocab, ctypes.byref(count))
    return np.array(ids[: count.value] if count.value else (), np.int32)


def _model(lib: ModuleType, path: Path, settings: SessionSettings, stop: threading.Event) -> Any:
    params = lib.llama_model_default_params()
    going = lib.llama_progress_callback(lambda progress, _: not stop.is_set())
    params.progress_callback = going
    params.n_gpu_layers = settings.gpu_layers
    if not settings.mapped:
        params.load_mode = lib.LLAMA_LOAD_MODE_NONE

    none = (ctypes.c_void_p * 1)(
        None
    )  # an empty list of devices, referenced until the load is done
    if not settings.offload:
        params.devices = ctypes.cast(none, ctypes.c_void_p)
        # Repacked weights would use different kernels for one row and for several.
        params.use_extra_bufts = False

    model = lib.llama_model_load_from_file(bytes(path), params)
    if not model:
        raise RuntimeError("llama.cpp could not load the model")
    return model


def _context_params(lib: ModuleType, settings: SessionSettings) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_seq_max = settings.n_ctx, settings.n_seq_max
    params.n_batch, params.n_ubatch = settings.n_batch, settings.n_ubatch
    params.n_outputs_max = settings.n_outputs_max
    params.n_threads = params.n_threads_batch = settings.n_threads
    params.flash_attn_type = _flash(lib, settings)
    params.offload_kqv = params.op_offload = settings.offload
    params.pooling_type = lib.LLAMA_POOLING_TYPE_NONE  # hidden states are those of each token
    params.kv_unified = True  # one pool of cells, whose sequences can share a beginning
    params.swa_full = True  # else the cells of windows are separate, and run out separately
    params.no_perf = True
    return params


def _flash(lib: ModuleType, settings: SessionSettings) -> int:
    flash_attn = settings.flash_attn
    if flash_attn is None and settings.offload:
        return int(lib.LLAMA_FLASH_ATTN_TYPE_AUTO)
    if flash_attn is False:
        return int(lib.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    # On a CPU, flash attention adds cell by cell and skips masked ones, so a row's sum does not
    # depend on where its cells are; without it, the sum depends on that in its last bits.
    return int(lib.LLAMA_FLASH_ATTN_TYPE_ENABLED)
