"""``infer-cli serve``: models over HTTP, on the wires of System One and OpenAI.

::

    from core_server import Served, Settings, create_app

    app = create_app([Served("mine", model)], Settings(api_key="secret"))

The app is an ASGI application; it closes the models when it ends.
"""

from core_server.app import create_app
from core_server.served import Served
from core_server.settings import Settings

__all__ = ["Served", "Settings", "create_app"]
