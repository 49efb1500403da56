"""Readable errors for device failures during a load or a prompt.

Seen in MLX 0.32: its GPU backends raise RuntimeError when an allocation fails. Its CPU backend does
not check: the process dies of a segmentation fault, or is killed if memory is overcommitted;
``set_memory_limit`` has no effect there.
"""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

from core.errors import InvalidModelError, OutOfMemoryError
from core_runtime.request import own_error

_OUT_OF_MEMORY = re.compile(
    "alloc|out of memory|outofmemory|insufficient memory"  # CUDA, Metal
    r"|cublas.* failed with code: 3\b"  # CUBLAS_STATUS_ALLOC_FAILED, which MLX does not spell out
)
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")  # Python's, C++'s


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if this error of MLX means that an allocation failed."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    return _OUT_OF_MEMORY.search(str(error).lower()) is not None


def scarce(error: BaseException, directory: Path) -> OutOfMemoryError | None:
    """Return the error of a load that ran out of memory or threads; None for other errors."""
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_THREAD):
        return OutOfMemoryError(
            f"Cannot load {directory}: the process cannot start another thread ({error}); "
            f"{threading.active_count()} Python threads are running. Close other models, end some "
            "threads, or raise the limit (`ulimit -u`, or the container's)."
        )

    if not is_out_of_memory(error):
        return None

    # If the process itself is limited, name the limit, not the device.
    limit = _address_limit()
    if limit is not None:
        return OutOfMemoryError(
            f"Cannot load {directory}: the process is limited to {limit / 1e9:.1f} GB of address "
            "space, of which threads and libraries take gigabytes. Raise the limit (`ulimit -v`)."
        )
    return OutOfMemoryError(
        f"{directory} does not fit the device's memory. Close other models, or load it "
        "in a smaller dtype: options={'dtype': 'bfloat16'}."
    )


def _address_limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def of_request(error: BaseException, tokens: int) -> Exception:
    """Return the error of a request, with a prompt of ``tokens`` tokens, after a failed step."""
    return too_large(tokens) if is_out_of_memory(error) else own_error(error)


def too_large(tokens: int) -> OutOfMemoryError:
    """Return the error of a prompt that does not fit into the remaining memory."""
    return OutOfMemoryError(
        f"Out of device memory for this prompt of {tokens} tokens. Shorten it, close other "
        "models, or load the model in a smaller dtype."
    )


def not_finite(values: str = "logits") -> InvalidModelError:
    """Return the error of a prompt for which the model computes NaN or infinity."""
    return InvalidModelError(
        f"The model's {values} for this prompt are NaN or infinite: its weights are broken, or "
        "overflow the dtype. Load it with options={'dtype': 'float32'}, or download it again."
    )
