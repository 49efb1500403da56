"""A web endpoint of one's own, in asyncio: labels for texts, and answers token by token.

``python examples/web_endpoint.py MODEL`` listens on port 8001. A client that leaves ends its work.
(`infer-cli serve` is such a server already, for the clients of System One and OpenAI.)
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import core
from core import aio


def create_app(model: core.TextModel) -> Starlette:
    """The application; it closes the model when it ends."""
    awaitable = aio.of(model)

    async def classify(request: Request) -> Response:
        """``{"prompts": [...], "labels": [...]}``: a row for each prompt, with its error."""
        body = await request.json()
        try:
            results = await awaitable.classify(body["prompts"], labels=body["labels"], timeout=60)
        except core.OptionError as error:  # a wrong option is the client's mistake, by its name
            return JSONResponse({"error": str(error)}, status_code=422)
        return JSONResponse({"rows": [result.to_dict() for result in results]})

    async def chat(request: Request) -> Response:
        """``{"message": ...}``: the answer as plain text, token by token."""
        body = await request.json()
        turns = [core.Message("user", body["message"])]

        async def tokens() -> AsyncIterator[str]:
            async with aclosing(awaitable.chat(turns, max_tokens=256)) as stream:
                async for token in stream:
                    yield token.text

        return StreamingResponse(tokens(), media_type="text/plain; charset=utf-8")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await awaitable.aclose()

    routes = [
        Route("/classify", classify, methods=["POST"]),
        Route("/chat", chat, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a path, or a name that infer-cli discover shows")
    uvicorn.run(create_app(core.load_model(parser.parse_args().model)), port=8001)
