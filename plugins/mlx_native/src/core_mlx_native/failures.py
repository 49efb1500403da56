"""What can go wrong with one prompt on the device, in words.

Seen in MLX 0.32: its GPU backends raise RuntimeError when an allocation fails. Its CPU backend
does not look, and the process dies of a segmentation fault, or is killed where memory is
overcommitted; ``set_memory_limit`` bounds nothing there.
"""

from __future__ import annotations

import copy
import traceback

from core.errors import InvalidModelError, OutOfMemoryError

_OUT_OF_MEMORY = ("alloc", "out of memory", "outofmemory", "insufficient memory")  # CUDA, Metal


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is MLX's way of saying that an allocation failed."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    text = str(error).lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def of_request(error: BaseException, tokens: int) -> Exception:
    """What one request, with a prompt of so many tokens, ends with when a step has failed.

    Every request gets an error of its own, for each is raised in another thread, and without the
    frames of the step, which would hold its arrays for as long as somebody keeps the error.
    """
    if is_out_of_memory(error):
        return too_large(tokens)
    try:
        own: BaseException = copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than it keeps
        own = error
    if own is error or not isinstance(own, Exception):
        own = RuntimeError(f"{type(error).__name__}: {error}")
    if error.__traceback__ is not None:
        own.add_note("".join(traceback.format_exception(error)))
    return own


def too_large(tokens: int) -> OutOfMemoryError:
    """The error of a prompt that does not fit into what memory is left."""
    return OutOfMemoryError(
        f"The device has no memory left for this prompt of {tokens} tokens. "
        "Shorten it, close other models, or load the model in a smaller dtype."
    )


def not_a_number() -> InvalidModelError:
    """The error of a prompt whose logits are NaN."""
    return InvalidModelError(
        "The model's logits for this prompt are not numbers: its weights are broken, or overflow "
        "the dtype. Load it with options={'dtype': 'float32'}, or download it again."
    )


def forget_frames(error: BaseException) -> None:
    """Let go of what the frames of an error hold: weights and caches, as long as it is kept."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
