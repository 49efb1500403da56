"""The errors of the device, for one prompt or a whole load, in words.

Seen in MLX 0.32: its GPU backends raise RuntimeError when an allocation fails. Its CPU backend
does not look, and the process dies of a segmentation fault, or is killed where memory is
overcommitted; ``set_memory_limit`` bounds nothing there.
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
    """True if this is MLX's way of saying that an allocation failed."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    return _OUT_OF_MEMORY.search(str(error).lower()) is not None


def scarce(error: BaseException, directory: Path) -> OutOfMemoryError | None:
    """The error of a load for want of memory or of threads; None for any other error."""
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_THREAD):
        return OutOfMemoryError(
            f"{directory} cannot be loaded: the system gives this process no further thread "
            f"({error}). It has {threading.active_count()} of Python's; end some, close other "
            "models, or raise the limit (`ulimit -u`, or that of the container)."
        )

    if not is_out_of_memory(error):
        return None

    # Where the process itself is limited, the limit is named, not the device.
    limit = _address_limit()
    if limit is not None:
        return OutOfMemoryError(
            f"{directory} cannot be loaded: this process may use {limit / 1e9:.1f} GB of "
            "addresses, of which threads and libraries take gigabytes. Raise the limit "
            "(`ulimit -v`)."
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
    """The error of one request, with a prompt of so many tokens, when a step has failed."""
    return too_large(tokens) if is_out_of_memory(error) else own_error(error)


def too_large(tokens: int) -> OutOfMemoryError:
    """The error of a prompt that does not fit into what memory is left."""
    return OutOfMemoryError(
        f"The device has no memory left for this prompt of {tokens} tokens. "
        "Shorten it, close other models, or load the model in a smaller dtype."
    )


def not_finite(values: str = "logits") -> InvalidModelError:
    """Return the error of a prompt for which the model computes NaN or infinity."""
    return InvalidModelError(
        f"The model's {values} for this prompt are NaN or infinite: its weights are broken, or "
        "overflow the dtype. Load it with options={'dtype': 'float32'}, or download it again."
    )
