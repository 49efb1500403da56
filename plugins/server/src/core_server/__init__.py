"""``infer-cli serve``: models over HTTP, with the APIs of System One and OpenAI.

::

    from core_server import Served, Settings, create_app

    app = create_app([Served("mine", model)], Settings(api_key="secret"))

The app is an ASGI application; it closes the models when it shuts down.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_server.app import create_app
    from core_server.models import Loadable
    from core_server.served import Served
    from core_server.settings import Settings

__all__ = ["Loadable", "Served", "Settings", "create_app"]

_HOMES = {
    "Loadable": "models",
    "Served": "served",
    "Settings": "settings",
    "create_app": "app",
}


def __getattr__(name: str) -> object:
    """Return a public name, imported on first use.

    Every start of infer-cli imports this package for a hook.
    """
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
