"""Many rows at once: each is separate work with its own error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from core.errors import CoreError, RequestError
from core.kit.base import STOPPED, Check
from core_remote.connection import Connection

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


def gathered(
    connection: Connection, works: Sequence[Work[T]], at_once: int, check: Check
) -> list[T | CoreError]:
    """Return the result of each row, or its error; a stopped row has the error that stopped it.

    Raises an error that concerns all of them.
    """
    results: list[T | CoreError | None] = [None] * len(works)
    try:
        check()
        if works:
            connection.run(_all(works, results, at_once), check)
    except STOPPED as stopped:
        return [stopped if result is None else result for result in results]
    return [result for result in results if result is not None]


async def _all(works: Sequence[Work[T]], results: list[T | CoreError | None], at_once: int) -> None:
    gate = asyncio.Semaphore(at_once)

    async def one(place: int) -> None:
        async with gate:
            try:
                results[place] = await works[place]()
            except RequestError as error:
                results[place] = error

    tasks = [asyncio.create_task(one(place)) for place in range(len(works))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
