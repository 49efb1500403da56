"""What can go wrong with one prompt on the device, in words."""

from __future__ import annotations

from core.errors import InvalidModelError, OutOfMemoryError


def is_out_of_memory(error: Exception) -> bool:
    """Whether this is MLX's way of saying that an allocation failed."""
    return isinstance(error, MemoryError) or "alloc" in str(error).lower()


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
