"""The server: three tools over models that are named, with structured output."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from itertools import islice
from typing import Annotated, Any, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

import core
import core_tasks
from core import aio
from core_mcp.models import Models

T = TypeVar("T")
_BLOCK = 16  # rows between two reports of progress
_FOR = "Language models on this machine: labels for many texts at once, and answers to prompts."
_READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_Name = Annotated[str, Field(description="A name listed by discover; optional if only one.")]


class Row(BaseModel):
    """The label of one text, or its error."""

    label: str | None
    probabilities: dict[str, float] | None
    margin: float | None
    label_mass: float | None
    error: str | None


class Rows(BaseModel):
    """The rows of all texts, in their order."""

    rows: list[Row]


class Text(BaseModel):
    """An answer and its finish reason."""

    text: str
    finish_reason: str
    prompt_tokens: int
    generated_tokens: int


class Found(BaseModel):
    """A model on this machine; ``problem`` describes a fault of its files."""

    name: str
    model_type: str
    format: str
    quantisation: str
    size_bytes: int
    problem: str


def create_server(models: Models, timeout: float | None = None) -> MCPServer:
    """Return a server of these models; ``timeout`` is in seconds, for each call of a tool."""
    server: MCPServer[Any] = MCPServer(
        "core", instructions=_FOR, version=core.__version__, log_level="WARNING"
    )

    @server.tool(annotations=_READ_ONLY)
    async def discover() -> list[Found]:
        """List the models on this machine by the names that the other tools accept."""
        described = await asyncio.to_thread(models.found)
        return [Found.model_validate(model, from_attributes=True) for model in described]

    @server.tool(annotations=_READ_ONLY)
    async def classify(
        texts: Annotated[list[str], Field(description="The texts; the answer has a row for each.")],
        labels: Annotated[list[str], Field(description="The labels to choose from.")],
        ctx: Context[Any, Any],
        template: Annotated[
            str,
            Field(description="A prompt with {text}, ending before the label: '{text} Topic:'."),
        ] = "{text}",
        model: _Name = "",
    ) -> Rows:
        """Choose a label for each text, by its probability after the template."""
        with _tool_call() as cancel:
            task = core_tasks.Task(template, tuple(labels))
            config = core.GenerateConfig(cancel=cancel, timeout=timeout)
            loaded = await asyncio.to_thread(models.load, model)
            decisions = task.classify_iter(loaded, texts, config)
            rows: list[Row] = []
            while block := await asyncio.to_thread(list, islice(decisions, _BLOCK)):
                rows += map(_row, block)
                await ctx.report_progress(len(rows), len(texts))
        return Rows(rows=rows)

    @server.tool(annotations=_READ_ONLY)
    async def generate(
        prompt: str,
        ctx: Context[Any, Any],
        system: str = "",
        max_tokens: int = 256,
        temperature: Annotated[float, Field(description="0: greedy.")] = 0.0,
        stop: Annotated[list[str] | None, Field(description="Texts that end the answer.")] = None,
        seed: int | None = None,
        model: _Name = "",
    ) -> Text:
        """Answer a prompt with a local model."""
        turns = [core.Message("system", system)] if system else []
        turns.append(core.Message("user", prompt))
        with _tool_call() as cancel:
            config = core.GenerateConfig(
                max_tokens=max_tokens,
                temperature=temperature,
                stop=tuple(stop or ()),
                seed=seed,
                cancel=cancel,
                timeout=timeout,
            )
            loaded = aio.of(await asyncio.to_thread(models.load, model))
            done = 0
            async with aclosing(loaded.chat(turns, config)) as stream:
                async for _ in stream:
                    done += 1
                    await ctx.report_progress(done, max_tokens)
        return Text(
            text=await stream.text(),
            finish_reason=stream.finish_reason or "",
            prompt_tokens=stream.metrics.prompt_tokens,
            generated_tokens=stream.metrics.generated_tokens,
        )

    return server


@contextmanager
def _tool_call() -> Iterator[threading.Event]:
    """Yield a cancel that is set if the client gives up; core's errors become tool errors."""
    cancel = threading.Event()
    try:
        yield cancel
    except core.CoreError as error:
        raise ToolError(f"{type(error).__name__}: {error}") from error
    finally:
        cancel.set()


def _row(decision: core_tasks.Decision) -> Row:
    error = decision.error and f"{type(decision.error).__name__}: {decision.error}"
    return Row.model_validate(
        {name: getattr(decision, name) for name in Row.model_fields if name != "error"}
        | {"error": error}
    )
