"""What can go wrong with one prompt on the device, in words.

Seen in MLX 0.32: its GPU backends raise RuntimeError when an allocation fails. Its CPU backend
does not look, and the process dies of a segmentation fault, or is killed where memory is
overcommitted; ``set_memory_limit`` bounds nothing there.
"""

from __future__ import annotations

from core.errors import InvalidModelError, OutOfMemoryError
from core.serving.failures import own_error

_OUT_OF_MEMORY = ("alloc", "out of memory", "outofmemory", "insufficient memory")  # CUDA, Metal


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is MLX's way of saying that an allocation failed."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    text = str(error).lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def of_request(error: BaseException, tokens: int) -> Exception:
    """What one request, with a prompt of so many tokens, ends with when a step has failed."""
    return too_large(tokens) if is_out_of_memory(error) else own_error(error)


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
