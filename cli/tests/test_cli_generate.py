"""``infer-cli generate``: a stream for one prompt, rows for many; and the flags of a load."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

import core
from core.errors import OutOfMemoryError
from core.options import GenerateConfig, LoadConfig
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model
from core_cli import options
from core_cli.app import build
from core_cli.flags import LoadFlags

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli


def said(prompt: str) -> str:
    return f" {prompt.upper()}\x1b[31m\n" if prompt == "evil" else f" {prompt.upper()}"


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    """A backend that says its prompts in capitals; BOOM raises."""
    errors = {"boom": OutOfMemoryError("No room.")}
    fake = FakeBackend(said, errors=errors.get, name="scripted")
    core.register(fake)
    yield fake
    REGISTRY._registered.pop("scripted")


@pytest.fixture
def model(backend: FakeBackend, tmp_path: Path) -> tuple[str, ...]:
    """The flags that name a model of it."""
    return "-m", str(write_model(tmp_path / "scripted")), "--backend", "scripted"


def test_one_prompt_is_answered_as_text(infer_cli: InferCli, model: tuple[str, ...]) -> None:
    done = infer_cli("generate", *model, "a b")
    assert (done.exit_code, done.stdout, done.stderr) == (0, " A B\n", "")
    told = infer_cli("generate", *model, "-v", "a b")
    assert told.stdout == " A B\n"
    assert told.stderr.splitlines()[-1].startswith("stop: ")


def test_what_a_terminal_would_obey_comes_as_escapes(
    infer_cli: InferCli, model: tuple[str, ...]
) -> None:
    assert infer_cli("generate", *model, "evil").stdout == " EVIL\\x1b[31m\n\n"


def test_several_prompts_are_rows(infer_cli: InferCli, model: tuple[str, ...]) -> None:
    rows = "line\ttext\tanswer\tfinish_reason\terror\n1\ta\t A\tstop\t\n2\tb\t B\tstop\t\n"
    assert infer_cli("generate", *model, "a", "b").stdout == rows
    lines = infer_cli("generate", *model, stdin="a\n\nb\n")
    assert lines.stdout == rows.replace("\n2\t", "\n3\t")


def test_a_json_line_has_the_whole_result(infer_cli: InferCli, model: tuple[str, ...]) -> None:
    given = '{"id": 7, "text": "a"}\n{"prompt": ""}\n{"text": "boom"}\n'
    done = infer_cli("generate", *model, "--json", "--logprobs", stdin=given)
    first, empty, failed = map(json.loads, done.stdout.splitlines())
    assert done.exit_code == 5
    assert (first["line"], first["id"], first["text"], first["answer"]) == (1, 7, "a", " A")
    assert (first["finish_reason"], first["error"]) == ("stop", None)
    assert all(isinstance(token["logprob"], float) for token in first["tokens"])
    assert empty["error"]["type"] == "EmptyPromptError"
    assert (failed["error"]["type"], failed["finish_reason"]) == ("OutOfMemoryError", "error")


def test_options_reach_the_model(
    infer_cli: InferCli, model: tuple[str, ...], backend: FakeBackend
) -> None:
    flags = ("--max-tokens", "5", "--stop", "X", "--stop", "Y", "--stop-token", "3", "--seed", "4")
    infer_cli("generate", *model, *flags, "--temperature", "0.5", "a")
    (call,) = backend.calls
    config = call.config
    assert (config.max_tokens, config.stop, config.stop_tokens) == (5, ("X", "Y"), (3,))
    assert (config.seed, config.temperature) == (4, 0.5)


def test_templates_and_chats_are_those_of_classify(
    infer_cli: InferCli, model: tuple[str, ...], backend: FakeBackend
) -> None:
    assert infer_cli("generate", *model, "--template", "x{text}", "a").stdout == " XA\n"
    for flags in (("-s", "Be brief."), ("-s", "Be brief.", "--json")):
        assert infer_cli("generate", *model, *flags, "a").exit_code == 0
        (prompt,) = backend.calls[-1].prompts
        assert prompt.index("Be brief.") < prompt.index("a")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--logprobs", "a"), 2, "--json"),
        (("--max-tokens", "0", "a"), 2, "--max-tokens"),
        (("-O", "context_len=64", "--context-len", "32", "a"), 2, "'context_len' is also given"),
        (("--gpu-layers", "1", "a"), 2, "gpu_layers"),
        (("boom",), 1, "No room."),
        (("",), 1, "is blank"),
    ],
)
def test_what_is_wrong_is_said(
    infer_cli: InferCli, model: tuple[str, ...], flags: tuple[str, ...], code: int, words: str
) -> None:
    done = infer_cli("generate", *model, *flags)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr


def test_a_backend_without_batches_answers_row_by_row(
    infer_cli: InferCli, model: tuple[str, ...], backend: FakeBackend
) -> None:
    backend.capabilities -= {core.Capability.BATCH_GENERATE}
    done = infer_cli("generate", *model, "a", "boom", "b")
    assert done.exit_code == 5
    assert [line.split("\t")[2] for line in done.stdout.splitlines()[1:]] == [" A", "", " B"]
    assert "No room." in done.stderr
    assert [call.operation for call in backend.calls] == ["generate"] * 3


# --------------------------------------------------------------------------- flags of all options


def flags_of(command: str) -> dict[str, Any]:
    return {option.name or "": option for option in build().commands[command].params}


@pytest.mark.parametrize("command", ["classify", "generate", "info"])
def test_every_option_of_a_load_is_a_flag(command: str) -> None:
    fields = {field.name for field in dataclasses.fields(LoadConfig)} - {"options"}
    assert {"backend", *LoadFlags().load_options()} == fields
    assert fields <= set(flags_of(command))


def test_every_option_of_a_request_is_a_flag_somewhere() -> None:
    fields = {field.name for field in dataclasses.fields(GenerateConfig)}
    # What a program alone can use: an object, and a vector of the vocabulary's size.
    fields -= {"cancel", "return_logits", "labels_only"}
    assert fields <= {*flags_of("classify"), *flags_of("generate")}


def test_an_option_of_a_load_means_the_same_as_its_flag() -> None:
    command = click.Command("x", params=[])
    options.load_options(command)
    by_flag = LoadFlags(context_len=64).load_config()
    by_pair = LoadFlags(pairs=("context_len=64",)).load_config()
    assert by_flag == by_pair == LoadConfig(context_len=64)
    own = LoadFlags(pairs=("speed=3", "gpu_layers=0")).load_config()
    assert own == LoadConfig(gpu_layers=0, options={"speed": 3})


def test_info_takes_no_option_in_silence(infer_cli: InferCli, fake_model: Path) -> None:
    done = infer_cli("info", fake_model, "-O", "speed=3")
    assert (done.exit_code, "--load" in done.stderr) == (2, True)
    assert infer_cli("info", fake_model, "--load", "-O", "speed=3").exit_code == 0
