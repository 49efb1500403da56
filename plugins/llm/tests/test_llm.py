"""simonw/llm with this plugin: models by name, options, conversations, async, and classify."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import llm
import pytest
from click.testing import CliRunner, Result
from llm.cli import cli

import core
import core_tasks
from core.options import GenerateOptions
from core.testing import FakeBackend
from core.types import DiscoveredModel
from core_llm import hooks
from core_llm.hooks import named
from core_llm.models import CoreModel, Options

Make = Callable[..., FakeBackend]
NAME = "SmolLM2-135M-Instruct"


def run(*words: str, given: str | None = None) -> Result:
    """What ``llm`` says, with stdout and stderr apart."""
    return CliRunner().invoke(cli, list(words), input=given)


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """A label is as likely as it is often in the prompt."""
    counts = [prompt.count(label) + 0.2 for label in labels]
    return {label: count / sum(counts) / 2 for label, count in zip(labels, counts, strict=True)}


def described(name: str, *others: str) -> DiscoveredModel:
    return DiscoveredModel(f"/m/{name}", "", 0, 0, 1, "gguf", 1, "core", (name, *others))


# ------------------------------------------------------------------------ names


def test_every_discovered_model_has_its_name_and_what_begins_it(fake: Make) -> None:
    fake(NAME, "gemma-3-270m")
    listed = run("models", "list", "-q", "core/").stdout
    assert f"core/{NAME} (aliases: core/smollm2, core/smollm2-135m" in listed
    assert "core/gemma-3-270m (aliases: core/gemma, core/gemma-3)" in listed
    assert llm.get_model("core/smollm2").model_id == f"core/{NAME}"
    assert llm.get_async_model("core/smollm2").model_id == f"core/{NAME}"


def test_a_name_that_two_models_have_is_neither_s() -> None:
    models = [described("a-1"), described("a-2", "x"), described("b", "x")]
    found = {name: aliases for _, name, aliases in named(models)}
    assert found == {"a-1": (), "a-2": (), "b": ()}
    twins = [described("same"), described("same")]
    assert [name for _, name, _ in named(twins)] == ["m/same", "m/same"]


def test_a_name_that_stands_for_more_than_a_file_is_loaded_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tuned = replace(described("tuned:latest"), parts=("adapter",), adapters=("/m/lora",))
    monkeypatch.setattr(hooks, "discover_stores", lambda examine: [described("plain"), tuned])
    models: list[CoreModel] = []
    hooks.register_models(lambda model, *_, aliases: models.append(model))
    assert [model.path for model in models] == ["/m/plain", "tuned:latest"]


def test_nothing_is_loaded_for_a_list(fake: Make) -> None:
    backend = fake(NAME)
    run("models", "list")
    assert backend.models == []


# ------------------------------------------------------------------------ answers


def test_an_answer_streamed_and_whole(fake: Make) -> None:
    backend = fake(NAME, answers="Hello there.")
    for words in (("-m", "core/smollm2"), ("-m", "core/smollm2", "--no-stream")):
        done = run(*words, "hi", "-s", "Be brief.")
        assert (done.exit_code, done.stdout) == (0, "Hello there.\n"), done.output
    assert [(turn.role, turn.content) for turn in backend.calls[0].messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]
    assert len(backend.models) == 1  # loaded once


def test_options_are_those_of_core(fake: Make) -> None:
    backend = fake(NAME, answers="Hello there.")
    given = {"max_tokens": 5, "temperature": 0.5, "top_k": 3, "seed": 7, "stop": "!"}
    words = [word for name, value in given.items() for word in ("-o", name, str(value))]
    assert run("-m", "core/smollm2", "hi", *words).stdout == "Hello\n"
    config = backend.calls[0].config
    assert {name: getattr(config, name) for name in given} == {**given, "stop": ("!",)}


def test_every_option_of_a_chat_is_one_of_llm() -> None:
    asked = GenerateOptions.__annotations__.keys() - Options.model_fields.keys()
    assert asked == {"cancel", "stop_tokens", "return_logprobs"}  # what llm has no place for
    assert Options.model_fields.keys() - GenerateOptions.__annotations__.keys() == {"backend"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "temprature", "1"), "temprature"),
        (("-o", "max_tokens", "0"), "max_tokens=0 is not valid"),
        (("-o", "top_p", "2"), "top_p=2"),
        (("-o", "backend", "nowhere"), "nowhere"),
        (("--at", __file__, "image/png"), "attachments"),
    ],
)
def test_what_cannot_be_honoured_is_told(words: Sequence[str], message: str, fake: Make) -> None:
    backend = fake(NAME, answers="Hello.")
    done = run("-m", "core/smollm2", "hi", *words)
    assert done.exit_code != 0
    assert message in done.output + str(done.exception)
    assert backend.calls == []


def test_the_error_of_a_prompt_is_told(fake: Make) -> None:
    fake(NAME, errors={"hi": core.RequestError("It cannot be read.")})
    done = run("-m", "core/smollm2", "hi")
    assert done.exit_code == 1
    assert "Error: It cannot be read." in done.stderr


def test_a_conversation_goes_on(fake: Make) -> None:
    backend = fake(NAME, answers=["One.", "Two.", "Three."])
    talk = llm.get_model("core/smollm2").conversation()
    assert [talk.prompt(text).text() for text in ("a", "b")] == ["One.", "Two."]
    told = [(turn.role, turn.content) for turn in backend.calls[1].messages]
    assert told == [("user", "a"), ("assistant", "One."), ("user", "b")]


def test_usage_and_the_end_are_told(fake: Make) -> None:
    fake(NAME, answers="Hello there.")
    response = llm.get_model("core/smollm2").prompt("hi", max_tokens=5)
    assert response.text() == "Hello"
    usage = response.usage()
    assert (usage.output, usage.details) == (5, {"cached_tokens": 0})
    assert (usage.input or 0) > 0
    assert response.response_json is not None
    assert response.response_json["finish_reason"] == "length"


def test_llm_logs_an_answer_and_goes_on_from_there(fake: Make) -> None:
    backend = fake(NAME, answers=["One.", "Two."])
    run("-m", "core/smollm2", "a")
    assert run("-c", "b").stdout == "Two.\n"
    assert [turn.content for turn in backend.calls[1].messages] == ["a", "One.", "b"]
    logged = json.loads(run("logs", "--json").stdout)
    assert [(each["response"], each["output_tokens"]) for each in logged] == [
        ("One.", 4),
        ("Two.", 4),
    ]


def test_async_says_what_sync_says(fake: Make) -> None:
    fake(NAME, answers="Hello.")

    async def both() -> list[Any]:
        model = llm.get_async_model("core/smollm2")
        parts = [part async for part in model.prompt("hi")]
        return [parts, await model.prompt("hi", stream=False)]

    parts, whole = asyncio.run(both())
    assert "".join(parts) == "Hello."
    assert asyncio.run(_text(whole)) == "Hello."


async def _text(response: Any) -> str:
    return str(await response.text())


def test_a_task_that_is_cancelled_ends_the_answer(fake: Make) -> None:
    backend = fake(NAME, answers="x" * 3000)
    seen = threading.Event()

    async def go() -> None:
        async for _ in llm.get_async_model("core/smollm2").prompt("hi", max_tokens=3000):
            seen.set()

    async def cancelled() -> None:
        task = asyncio.create_task(go())
        assert await asyncio.to_thread(seen.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert backend.calls[0].config.cancel is not None
    assert backend.calls[0].config.cancel.is_set()


# ------------------------------------------------------------------------ classify


def test_classify_prints_a_line_of_json_for_each_text(fake: Make) -> None:
    fake(NAME, labels=likely)
    words = ("classify", "-m", "core/smollm2", "-l", "good,bad")
    done = run(*words, "good", "bad bad")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["text"], row["label"], row["error"]) for row in rows] == [
        ("good", "good", None),
        ("bad bad", "bad", None),
    ]
    assert {"probabilities", "margin", "label_mass", "level"} <= rows[0].keys()
    assert run(*words, "--plain", given="bad\ngood\n").stdout == "bad\ngood\n"
    from_an_editor = run(*words, given="\ufeffbad\r\ngood\r\n").stdout.splitlines()
    assert [json.loads(line)["text"] for line in from_an_editor] == ["bad", "good"]


def test_the_error_of_a_row_is_its_own(fake: Make) -> None:
    fake(NAME, labels=likely)
    done = run("classify", "-m", "core/smollm2", "-l", "good,bad", "good", "", "bad")
    assert done.exit_code == 5
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["error"] and row["error"]["type"] for row in rows] == [
        None,
        "EmptyPromptError",
        None,
    ]


def test_classify_takes_a_task(fake: Make, tmp_path: Path) -> None:
    backend = fake(NAME, labels=likely)
    path = tmp_path / "task.toml"
    core_tasks.Task("{text} is {label}?", ("good", "bad"), mode="many").save(path)
    done = run("classify", "-m", "core/smollm2", "--task", str(path), "--plain", "good")
    assert done.stdout == "good,bad\n"
    assert len(backend.models) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-m", "core/smollm2", "x"), "Pass either --labels or --task"),
        (("-m", "core/nothing", "-l", "a,b", "x"), "Unknown model"),
        (("-m", "gpt-4o", "-l", "a,b", "x"), "does not provide label probabilities"),
        (("-m", "core/smollm2", "-l", "a,a", "x"), "Duplicate label"),
        (("-m", "core/smollm2", "-l", "a,b", "--template", "x", "x"), "must contain {text}"),
    ],
)
def test_classify_says_what_is_wrong(words: Sequence[str], message: str, fake: Make) -> None:
    backend = fake(NAME, labels=likely)
    done = run("classify", *words)
    assert done.exit_code != 0
    assert message in done.output
    assert backend.calls == []


# ------------------------------------------------------------------------ a real model


def _said(user: Path, *words: str) -> str:
    environment = {**os.environ, "LLM_USER_PATH": str(user), "LLM_LOAD_PLUGINS": "infercore-llm"}
    command = [sys.executable, "-m", "llm", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_labels_on_a_real_model(smollm2_dir: Path, tmp_path: Path) -> None:
    words = ("classify", "-m", "core/smollm2", "-l", "finance,sports", "-p")
    news = ("--template", "{text} This news is about", "The bank raised its rate.")
    assert _said(tmp_path, *words, *news) == "finance\n"


@pytest.mark.slow
def test_the_prompt_on_a_real_model(smollm2_dir: Path, tmp_path: Path) -> None:
    words = ("-m", "core/smollm2", "Name three rivers.", "-o", "max_tokens", "8", "-n")
    assert _said(tmp_path, *words).strip()
