"""What an attack may end in: an answer, an error of `core`'s tree, or the caller's own mistake."""

from __future__ import annotations

import linecache
import pickle
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType

import core

HERE = Path(__file__).parent
PACKAGES = ("/core/", "/core_mlx_native/", "/core_llama_cpp/", "/core_mlx_lm_bridge/")


class ForeignError(AssertionError):
    """An exception that no caller can be asked to expect; the message is its traceback."""


def check(error: BaseException | None) -> str:
    """The name of an exception that may leave a call. Raises `ForeignError` for any other.

    A TypeError or ValueError has to be raised on purpose: by a ``raise`` in these packages, or by
    Python at the call itself, where the arguments do not fit the signature.
    """
    if error is None:
        return "answered"
    if isinstance(error, core.CoreError):
        _check_message(error)
    elif not (isinstance(error, TypeError | ValueError) and _is_deliberate(error)):
        raise ForeignError("".join(traceback.format_exception(error))) from None
    return type(error).__name__


def check_rows(rows: Iterable[object]) -> None:
    """The same for the errors of a batch's rows."""
    for row in rows:
        error = getattr(row, "error", None)
        if error is not None and not isinstance(error, core.CoreError):
            raise ForeignError("".join(traceback.format_exception(error)))
        check(error)


def _check_message(error: core.CoreError) -> None:
    """It says something, and crosses a border between processes."""
    text = str(error)
    if not text.strip() or text.rstrip().endswith(":"):
        raise ForeignError(f"{type(error).__name__} has no message: {text!r}")
    if str(pickle.loads(pickle.dumps(error))) != text:
        raise ForeignError(f"{type(error).__name__} changes when it is pickled: {text!r}")


def _is_deliberate(error: BaseException) -> bool:
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return False
    frame, line = frames[-1]
    if Path(frame.f_code.co_filename).parent == HERE:
        return True
    return _is_ours(frame.f_code) and _source(frame.f_code, line).startswith("raise ")


def _is_ours(code: CodeType) -> bool:
    return any(package in code.co_filename for package in PACKAGES)


def _source(code: CodeType, line: int) -> str:
    return linecache.getline(code.co_filename, line).strip()
