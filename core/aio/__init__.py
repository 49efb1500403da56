"""The contract for asyncio: every operation of a loaded model, awaited.

::

    model = await core.aio.load_model(path)
    results = await model.classify(prompts, labels=["finance", "sports"])
    async with contextlib.aclosing(model.generate("Once upon a time")) as stream:
        async for token in stream:
            print(token.text, end="")

``core.aio.of(model)`` takes a model that is loaded already. A call gets a thread of its own, but
for models that wait in the event loop (`core.Asynchronous`), as those behind a server do. A task
that is cancelled stops its request, and the model works on.
"""

from core.aio.model import AsyncModel, load_model, of
from core.aio.streams import AsyncItems, AsyncTokens

__all__ = ["AsyncItems", "AsyncModel", "AsyncTokens", "load_model", "of"]
