"""Failures of mlx-lm, as the `Error` answers that a caller turns into its own errors."""

from __future__ import annotations

import sys

from core_mlx_lm_bridge.protocol import Error

_OUT_OF_MEMORY = ("alloc", "out of memory", "outofmemory", "insufficient memory")  # CUDA, Metal


class Failure(Exception):
    """An error with a name of ``core.errors``."""

    def __init__(
        self, error: str, message: str, length: int = 0, limit: int = 0, variable: str = ""
    ) -> None:
        super().__init__(message)
        self.error, self.length, self.limit, self.variable = error, length, limit, variable

    def answer(self, id: int) -> Error:
        """Return the failure as the last answer to a request."""
        return Error(
            id=id,
            error=self.error,
            message=str(self),
            length=self.length,
            limit=self.limit,
            variable=self.variable,
        )


def not_installed(error: ImportError) -> Failure:
    """Return the failure to import mlx-lm or one of its dependencies."""
    extra = "[cpu]" if sys.platform == "linux" else ""
    return Failure(
        "BackendUnavailableError",
        f"mlx-lm cannot be imported by the worker's interpreter ({error}). "
        f"Install it with: {sys.executable} -m pip install 'mlx-lm{extra}'",
    )


def of_load(error: Exception, path: str) -> Failure:
    """Return the failure for an error of a load."""
    if is_out_of_memory(error):
        return Failure(
            "OutOfMemoryError", f"{path} does not fit in device memory. Close other models."
        )

    # The text of the error shows the kind.
    text = str(error) or type(error).__name__
    if "not supported" in text:
        return Failure("UnsupportedModelError", f"mlx-lm cannot run {path}: {text}{_cause(error)}")
    if "trust_remote_code" in text:
        return Failure(
            "UnsupportedModelError",
            f"{path} requires code from the model repository, which is never run. Use another "
            "model.",
        )

    if isinstance(error, FileNotFoundError):
        return Failure("ModelNotFoundError", f"{path} is incomplete: {text}")
    return Failure(
        "InvalidModelError",
        f"Cannot load {path} with mlx-lm: {type(error).__name__}: {text[:500].rstrip('.')}. "
        "Download or convert the model again.",
    )


def of_generation(error: Exception, tokens: int) -> Exception:
    """Return the failure for an error of a generation; ``tokens``: the prompt's length."""
    if not is_out_of_memory(error):
        return error
    return Failure(
        "OutOfMemoryError",
        f"Not enough device memory for this prompt of {tokens} tokens. "
        "Shorten it, or close other models.",
    )


def not_finite() -> Failure:
    """Return the failure of a generation whose logits are NaN or infinite."""
    return Failure(
        "InvalidModelError",
        "The model's logits for this prompt are NaN or infinite: its weights are broken, or "
        "overflow their dtype. Convert the model again in bfloat16 or float32, or download it "
        "again.",
    )


def is_out_of_memory(error: Exception) -> bool:
    """Return True for the errors with which MLX reports a failed allocation."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    text = str(error).lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def _cause(error: Exception) -> str:
    return f" ({error.__cause__})" if error.__cause__ else ""
