"""The server through the official client: in this process, and over stdin and stdout of another."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

import core
import core_tasks
from core.api import close_shared_models
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel, write_model
from core.types import DiscoveredModel
from core_mcp.models import Models
from core_mcp.server import create_server

pytestmark = pytest.mark.load  # a busy machine can make it fail

# What `infer-cli mcp` is started with: a backend of this file, under the name that is asked first.
STARTED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import core, test_mcp
core.register(test_mcp.Backend())
from core_cli import main
main()
"""
WAIT = 60.0


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """A label is as likely as it is often in the prompt."""
    counts = [prompt.count(label) + 0.2 for label in labels]
    return {label: count / sum(counts) / 2 for label, count in zip(labels, counts, strict=True)}


class Watched(FakeModel):
    """Writes a file where CORE_TEST_ENDED says, once an answer was cancelled or has ended."""

    def chat(self, messages: Any, config: Any = None, /, **options: Any) -> Any:
        assert os.read(0, 1) == b""  # the messages on stdin are the protocol's
        threading.Thread(target=self._watch, args=(config.cancel,), daemon=True).start()
        return super().chat(messages, config, **options)

    @staticmethod
    def _watch(cancel: threading.Event) -> None:
        cancel.wait()
        sys.stdout.write("this is no message of the protocol\n")  # and breaks nothing
        if ended := os.environ.get("CORE_TEST_ENDED"):
            Path(ended).touch()


class Backend(FakeBackend):
    """Loads `Watched` models, whose answers are long."""

    def __init__(self) -> None:
        super().__init__(labels=likely, name="metal")

    def load_model(self, path: Any, config: Any) -> FakeModel:
        super().load_model(path, config)
        return Watched("Hello there. " * 300, labels=likely)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    fake = FakeBackend(
        "Hello there.",
        labels=likely,
        errors={"poisoned": core.RequestError("It cannot be read.")},
        name="metal",
    )
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, "metal": fake})
    yield fake
    close_shared_models()


@pytest.fixture
def two(backend: FakeBackend, tmp_path: Path) -> Models:
    return Models([str(write_model(tmp_path / name)) for name in ("one", "two")])


def asked(models: Models, talk: Callable[[Client], Coroutine[Any, Any, Any]], **given: Any) -> Any:
    """What a conversation with a server of these models comes to."""

    async def run() -> Any:
        async with Client(create_server(models, **given)) as client:
            return await asyncio.wait_for(talk(client), WAIT)

    return asyncio.run(run())


def call(
    models: Models, tool: str, *, server: Mapping[str, Any] | None = None, **words: Any
) -> Any:
    """The result of one call."""
    return asked(models, lambda client: client.call_tool(tool, words), **(server or {}))


def said(result: CallToolResult) -> str:
    return "".join(getattr(part, "text", "") for part in result.content)


# ------------------------------------------------------------------------ the tools


def test_the_tools_say_what_they_take_and_give(two: Models) -> None:
    tools = {tool.name: tool for tool in asked(two, lambda client: client.list_tools()).tools}
    assert tools.keys() == {"classify", "generate", "discover"}
    assert all(tool.output_schema and tool.description for tool in tools.values())
    assert set(tools["classify"].input_schema["required"]) == {"texts", "labels"}
    assert all(tool.annotations.read_only_hint for tool in tools.values())


def test_discover_names_models_and_shows_no_path(two: Models, tmp_path: Path) -> None:
    result = call(two, "discover")
    found = result.structured_content["result"]
    assert [model["name"] for model in found] == ["one", "two"]
    assert str(tmp_path) not in json.dumps(found)


def test_classify_gives_a_row_for_each_text(two: Models) -> None:
    texts = ["good", "", "bad bad"]
    result = call(two, "classify", texts=texts, labels=["good", "bad"], model="one")
    assert not result.is_error
    rows = result.structured_content["rows"]
    [first, _, last] = core_tasks.Task("{text}", ("good", "bad")).classify(
        FakeModel(labels=likely), texts
    )
    assert rows[0] == {
        "label": "good",
        "probabilities": first.probabilities,
        "margin": first.margin,
        "label_mass": first.label_mass,
        "error": None,
    }
    assert rows[1]["error"].startswith("EmptyPromptError: ")
    assert rows[1]["label"] is None
    assert rows[2]["probabilities"] == last.probabilities
    assert json.loads(said(result)) == result.structured_content


def test_generate_answers(two: Models, backend: FakeBackend) -> None:
    words: dict[str, Any] = {
        "prompt": "hi",
        "system": "Be brief.",
        "stop": ["re."],
        "seed": 7,
        "model": "two",
    }
    result = call(two, "generate", **words)
    assert result.structured_content["text"] == "Hello the"
    assert result.structured_content["finish_reason"] == "stop"
    [asked_for] = backend.calls
    assert [(turn.role, turn.content) for turn in asked_for.messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]
    assert asked_for.config.seed == 7
    short = call(two, "generate", prompt="hi", max_tokens=5, model="two").structured_content
    assert (short["text"], short["finish_reason"], short["generated_tokens"]) == (
        "Hello",
        "length",
        5,
    )
    assert len(backend.models) == 1  # loaded once


def test_progress_is_told(two: Models) -> None:
    seen: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    words = {"texts": ["good"] * 40, "labels": ["good", "bad"], "model": "one"}
    asked(two, lambda client: client.call_tool("classify", words, progress_callback=note))
    assert seen == [(16, 40), (32, 40), (40, 40)]


# ------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("tool", "words", "message"),
    [
        ("generate", {"prompt": "poisoned"}, "RequestError: It cannot be read."),
        ("generate", {"prompt": "hi", "max_tokens": 0}, "max_tokens=0 is not valid"),
        ("classify", {"texts": ["a"], "labels": ["a", "a"]}, "Duplicate label"),
        ("classify", {"texts": ["a"], "labels": ["a"]}, "needs more labels"),
        (
            "classify",
            {"texts": ["a"], "labels": ["a", "b"], "template": "x"},
            "must contain {text}",
        ),
        ("classify", {"texts": "a", "labels": ["a", "b"]}, "list"),
    ],
)
def test_what_went_wrong_is_told_to_the_client(
    tool: str, words: dict[str, Any], message: str, two: Models
) -> None:
    result = call(two, tool, model="one", **words)
    assert result.is_error
    assert message in said(result)


def test_late_rows_have_their_error_and_a_late_answer_is_one(two: Models) -> None:
    late = {"timeout": 1e-9}
    words = {"texts": ["good"], "labels": ["good", "bad"], "model": "one"}
    [row] = call(two, "classify", server=late, **words).structured_content["rows"]
    assert row["error"].startswith("GenerationTimeout: ")
    result = call(two, "generate", server=late, prompt="hi", model="one")
    assert "GenerationTimeout" in said(result)


def test_models_are_named_and_no_path_is_followed(
    two: Models, backend: FakeBackend, tmp_path: Path
) -> None:
    write_model(tmp_path / "secret")
    for name in (str(tmp_path / "one"), str(tmp_path / "secret"), "../secret", "secret", "ONE", ""):
        result = call(two, "generate", prompt="hi", model=name)
        assert result.is_error
        assert "Choose one of: 'one', 'two'." in said(result)
    assert backend.models == []


def test_without_models_those_that_are_discovered(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "HF_HOME",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "OLLAMA_MODELS",
        "LLAMA_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    assert "Choose one of: none." in said(call(Models(), "generate", prompt="hi"))
    write_model(tmp_path / "core" / "models" / "only")
    models = Models()
    assert call(models, "generate", prompt="hi").structured_content["text"] == "Hello there."
    assert call(models, "generate", prompt="hi", model="only").is_error is False


def test_a_name_that_stands_for_more_than_a_file_is_loaded_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tuned = DiscoveredModel(
        *("/m/base", "", 0, 0, 1, "gguf", 1, "ollama"),
        names=("tuned:latest", "tuned"),
        parts=("adapter",),
        adapters=("/m/lora",),
    )
    monkeypatch.setattr("core_mcp.models.discover_stores", lambda examine: [tuned])
    monkeypatch.setattr("core_mcp.models.shared_model", lambda model, backend: FakeModel(model))
    loaded: Any = Models().load("tuned")
    assert loaded.generate("hi").text() == "tuned:latest"


def test_models_that_cannot_be_told_apart_are_refused(backend: FakeBackend, tmp_path: Path) -> None:
    twice = [str(write_model(tmp_path / folder / "same")) for folder in ("a", "b")]
    with pytest.raises(core.InvalidOptionError, match="same"):
        Models(twice)
    with pytest.raises(core.ModelNotFoundError):
        Models([str(tmp_path / "nothing")])


def test_a_call_that_is_cancelled_ends_its_work(backend: FakeBackend, two: Models) -> None:
    async def talk(client: Client) -> None:
        begun = asyncio.Event()

        async def note(*_: Any) -> None:
            begun.set()

        words = {"prompt": "hi", "max_tokens": 100_000, "model": "one"}
        task = asyncio.create_task(client.call_tool("generate", words, progress_callback=note))  # type: ignore[arg-type]
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancel = backend.calls[0].config.cancel
        assert cancel is not None
        while not cancel.is_set():
            await asyncio.sleep(0.01)
        assert not (await client.call_tool("discover", {})).is_error

    asked(two, talk)


# ------------------------------------------------------------------------ over stdin and stdout


def test_over_stdio_a_call_is_cancelled_and_the_next_is_answered(tmp_path: Path) -> None:
    ended, model = tmp_path / "ended", write_model(tmp_path / "mine")
    environment = {**os.environ, "CORE_TEST_ENDED": str(ended)}
    started = StdioServerParameters(
        command=sys.executable, args=["-c", STARTED, "mcp", str(model)], env=environment
    )

    async def talk() -> None:
        async with Client(started) as client:
            begun = asyncio.Event()

            async def note(*_: Any) -> None:
                begun.set()

            words = {"prompt": "hi", "max_tokens": 100_000}
            task = asyncio.create_task(
                client.call_tool("generate", words, progress_callback=note)  # type: ignore[arg-type]
            )
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not ended.exists():
                await asyncio.sleep(0.02)

            rows = await client.call_tool(
                "classify", {"texts": ["good", ""], "labels": ["good", "bad"]}
            )
            first, second = (rows.structured_content or {})["rows"]
            assert first["label"] == "good"
            assert second["error"].startswith("EmptyPromptError: ")

    asyncio.run(asyncio.wait_for(talk(), 3 * WAIT))


# A hook plugin that prints while it is imported, from a thread, from C and from a child.
LOUD = r"""
import ctypes, os, threading, time
import pluggy

def noise():
    print("NOISE", flush=True)
    os.write(1, b"NOISE \xff without an end")
    ctypes.CDLL(None).puts(b"NOISE")
    ctypes.CDLL(None).fflush(None)
    os.system("echo NOISE")

def without_end():
    while True:
        noise()
        time.sleep(0.01)

noise()
threading.Thread(target=without_end, daemon=True).start()

@pluggy.HookimplMarker("core")
def core_register_commands(cli):
    noise()
"""


def messages(*requests: Mapping[str, Any]) -> bytes:
    return b"".join(
        json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n" for request in requests
    )


def test_noise_is_no_part_of_the_protocol(tmp_path: Path) -> None:
    model, site = write_model(tmp_path / "mine"), tmp_path / "site"
    info = site / "loud-1.dist-info"
    info.mkdir(parents=True)
    (site / "loud.py").write_text(LOUD)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[core.hooks]\nloud = loud\n")
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    started = subprocess.Popen(
        [sys.executable, "-c", STARTED, "mcp", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    ask = {"name": "generate", "arguments": {"prompt": "hi", "max_tokens": 5}}
    with started as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(
            messages(
                {"id": 1, "method": "initialize", "params": hello},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "tools/call", "params": ask},
            )
        )
        process.stdin.flush()
        answers = []
        for line in process.stdout:
            answers.append(json.loads(line))
            if answers[-1].get("id") == 2:
                break
        process.stdin.close()
        assert process.stdout.read() == b""
    assert answers[-1]["result"]["structuredContent"]["text"] == "Hello"


@pytest.mark.slow
def test_infer_cli_mcp_on_a_real_model(smollm2_dir: Path) -> None:
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "core", "mcp", str(smollm2_dir)], env={**os.environ}
    )
    words = {
        "texts": ["The bank raised its rate.", "The goalkeeper saved twice."],
        "labels": ["finance", "sports"],
        "template": "{text} This news is about",
    }

    async def talk() -> Any:
        async with Client(started) as client:
            return await client.call_tool("classify", words)

    found = asyncio.run(talk()).structured_content
    assert [row["label"] for row in found["rows"]] == ["finance", "sports"]
