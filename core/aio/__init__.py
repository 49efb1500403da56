"""The contract for asyncio: every operation of a loaded model, awaited.

::

    model = await core.aio.load_model(path)
    results = await model.classify(prompts, labels=["finance", "sports"])
    async with contextlib.aclosing(model.generate("Once upon a time")) as stream:
        async for token in stream:
            print(token.text, end="")

``core.aio.of(model)`` wraps a loaded model. Each call runs in a separate thread, except for models
that wait in the event loop (`core.Asynchronous`), such as the models of a server. Cancelling a task
stops its request; the model remains usable.
"""

from core.aio.model import AsyncModel, load_model, of
from core.aio.streams import AsyncItems, AsyncTokens

__all__ = ["AsyncItems", "AsyncModel", "AsyncTokens", "load_model", "of"]
