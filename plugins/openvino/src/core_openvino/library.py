"""OpenVINO's library: imported without its telemetry, and one `Core` for all models."""

from __future__ import annotations

import sys
import threading
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

_TELEMETRY = "openvino_telemetry"
# In lower case; the last is the message of a thread that cannot be started.
_SCARCE = ("alloc", "not enough memory", "resource temporarily unavailable")
_lock = threading.Lock()


def load_library() -> ModuleType:
    """Import OpenVINO. Its converters would import a telemetry package, which is kept out.

    ``openvino.tools.ovc`` tries to import it, and goes without it on ImportError.
    """
    with _lock:
        hidden = _TELEMETRY not in sys.modules
        if hidden:
            sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # import raises ImportError
        try:
            import openvino  # noqa: F401
        finally:
            if hidden:
                sys.modules.pop(_TELEMETRY, None)
    return sys.modules["openvino"]


def reason_of(error: BaseException) -> str:
    """Return the reason of an error; OpenVINO's own begin with lines of its sources."""
    lines = [line for line in str(error).splitlines() if line]
    return lines[-1].rstrip(".") if lines else type(error).__name__


def lacks_memory(error: BaseException) -> bool:
    """Return True if an error, also one of OpenVINO, means that memory was not enough."""
    reason = reason_of(error).lower()
    return isinstance(error, MemoryError) or any(words in reason for words in _SCARCE)


@cache
def core() -> openvino.Core:
    """Return the object that compiles graphs."""
    load_library()
    import openvino

    return openvino.Core()
