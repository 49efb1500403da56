"""The llama_cpp module: imported once, with its version checked and its log redirected.

A failed load, which llama.cpp reports with a null pointer and its log, becomes a typed error.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from core.errors import (
    BackendUnavailableError,
    InvalidModelError,
    ModelError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from core_llama_cpp.availability import library_reason

TILED = "GGML_CPU_TILED_MM"
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # OpenMP reads them when it is loaded
LOG_LEVELS = ("off", "error", "warning", "info", "debug")
_LOGGING = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}  # ggml.h
_OFF = logging.CRITICAL + 1
_CONTINUED = 5  # ggml_log_level: continues the previous line
_MOST_LINES = 20

_logger = logging.getLogger("llama.cpp")
_lock = threading.Lock()
_module: ModuleType | None = None
_callback: Any = None  # C keeps no reference to it
_OUT_OF_MEMORY = ("failed to allocate", "out of memory", "unable to allocate", "bad_alloc")
_UNSUPPORTED = ("unknown model architecture", "unknown pre-tokenizer", "unsupported")
_LEAD = "error loading model: "
_READER, _UNREAD = "gguf_", "failed to load model from"


def load_library(backend: str = "llama_cpp") -> ModuleType:
    """Return the module, ready for use; from any thread. Raises `BackendUnavailableError`."""
    global _module
    with _lock:
        if _module is None:
            if reason := library_reason():
                raise BackendUnavailableError(backend, reason)
            _module = _imported(backend)
        return _module


def set_log_level(level: str) -> None:
    """Show llama.cpp's log from this level up, one of `LOG_LEVELS`; for the entire process.

    Lines go to the handlers of the logger ``llama.cpp``; to stderr without any.
    """
    if level == "off":
        _logger.setLevel(_OFF)
        return
    _logger.setLevel(level.upper())
    if not _logger.hasHandlers():
        _logger.addHandler(logging.StreamHandler())


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Collect the errors that llama.cpp logs on this thread, shown or not.

    Its functions return a null pointer and give the reason only in the log.
    """
    lines: list[str] = []
    outer = getattr(_heard, "lines", None)
    _heard.lines = lines
    try:
        yield lines
    finally:
        _heard.lines = outer


_heard = threading.local()


def tiled_products() -> bool:
    """Return True if ggml may use its tiled kernels for K-quants, in passes of eight rows or more.

    llama.cpp reads the variable once, at its first product (ggml-cpu/tiled/tiled.cpp).
    """
    value = re.match(r"\s*[+-]?0*[1-9]", os.environ.get(TILED, "1"))  # as C's atoi
    return value is not None


def _note_spinning() -> None:
    """Log, at INFO, how to make the threads sleep while they wait, unless that was decided."""
    if not any(name in os.environ for name in _WAITING):
        logging.getLogger("core_llama_cpp").info(
            "llama.cpp's threads spin while they wait for one another, which takes time from other "
            "programs and is slow beside them. On a busy machine, set OMP_WAIT_POLICY=passive in "
            "the environment before Python starts."
        )


def _imported(backend: str) -> ModuleType:
    global _callback
    _note_spinning()
    os.environ.setdefault(TILED, "0")  # or results would depend on the other prompts of a batch
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise BackendUnavailableError(backend, f"llama_cpp cannot be imported: {error}") from error
    _logger.setLevel(_OFF)
    _callback = llama_cpp.llama_log_callback(_Log().write)
    llama_cpp.llama_log_set(_callback, None)
    llama_cpp.llama_backend_init()
    module: ModuleType = llama_cpp
    return module


class _Log:
    """llama.cpp's log in complete lines, assembled from pieces."""

    def __init__(self) -> None:
        self._level, self._text = logging.DEBUG, ""

    def write(self, level: int, text: bytes | None, _: object) -> None:
        """Take a piece of the log. Must not raise: C is the caller."""
        if level != _CONTINUED:
            self._level = _LOGGING.get(level, logging.DEBUG)
        *lines, self._text = (self._text + (text or b"").decode(errors="replace")).split("\n")
        for line in lines:
            self._line(line.rstrip())

    def _line(self, line: str) -> None:
        heard: list[str] | None = getattr(_heard, "lines", None)
        if heard is not None and self._level >= logging.ERROR and len(heard) < _MOST_LINES:
            heard.append(line)
        if line.strip("."):  # progress
            _logger.log(self._level, "%s", line)


def load_failure(path: Path, lines: Sequence[str]) -> ModelError | OutOfMemoryError:
    """Return the error for a model, or its context, that llama.cpp failed to create."""
    reason = _reason(lines)
    text = " ".join(lines).lower()

    if any(words in text for words in _OUT_OF_MEMORY):
        return OutOfMemoryError(
            f"{path} does not fit in device memory: llama.cpp reported {reason!r}. Reduce "
            "context_len or gpu_layers, or free some memory."
        )
    if any(words in text for words in _UNSUPPORTED):
        return UnsupportedModelError(
            f"llama.cpp cannot run {path}: {reason}. Try a newer version: "
            "pip install --upgrade llama-cpp-python"
        )

    return InvalidModelError(
        f"Cannot load {path} with llama.cpp: {reason}. Download or convert it again."
    )


def _reason(lines: Sequence[str]) -> str:
    """Return the line with the cause; the last lines only report that loading failed."""
    messages = [line.split(_LEAD, 1)[1] for line in lines if _LEAD in line]
    if messages and _UNREAD in messages[-1]:  # an earlier line has the file's fault
        messages = [line for line in lines if line.startswith(_READER)][:1] or messages
    return messages[-1] if messages else lines[0] if lines else "it gave no reason"
