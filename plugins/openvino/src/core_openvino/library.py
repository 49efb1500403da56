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


@cache
def core() -> openvino.Core:
    """Return the object that compiles graphs."""
    load_library()
    import openvino

    return openvino.Core()
