"""Flags for a chat template: its variables, an opening, a turn to continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import core
import core_tasks
from core.kit.chat import RenderedPrompt
from core.options import LoadConfig
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model
from tests.thinker import Thinker

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

Asked = Callable[..., "Result"]
TURNS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Yes, "}]
OFF = {"enable_thinking": False}


class Thinkers(FakeBackend):
    def load_model(self, path: Any, config: LoadConfig) -> Any:
        sound = super().load_model(path, config)
        self.models[-1] = Thinker(str.upper, labels=lambda prompt, labels: "a", name=self.name)
        assert sound.info.context_length == self.models[-1].info.context_length
        return self.models[-1]


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = Thinkers(str.upper, labels=lambda prompt, labels: "a", name="thinker")
    core.register(fake)
    yield fake
    REGISTRY._registered.pop("thinker")


@pytest.fixture
def asked(infer_cli: InferCli, backend: FakeBackend, tmp_path: Path) -> Asked:
    """A command with a model that thinks."""
    model = str(write_model(tmp_path / "model"))

    def run(command: str, *flags: str | Path, **stdin: str) -> Result:
        result = infer_cli(command, "-m", model, "--backend", "thinker", *flags, **stdin)
        assert "Traceback" not in result.output
        return result

    return run


def last(backend: FakeBackend) -> str:
    return backend.calls[-1].prompts[-1]


def test_variables_reach_the_template_and_imply_a_chat(asked: Asked, backend: FakeBackend) -> None:
    for flags in (("--no-thinking",), ("--chat-template-kwargs", json.dumps(OFF))):
        assert asked("generate", *flags, "hi").exit_code == 0
        assert last(backend) == "<user>hi<end><assistant><think></think>"
        assert isinstance(last(backend), RenderedPrompt)
    assert asked("generate", "--thinking", "hi").exit_code == 0
    assert last(backend) == "<user>hi<end><assistant><think>"
    for nothing in ((), ("--chat-template-kwargs", "{}")):
        assert asked("generate", *nothing, "hi").exit_code == 0
        assert last(backend) == "hi"


def test_an_opening_begins_the_answer(asked: Asked, backend: FakeBackend) -> None:
    assert asked("generate", "--opening", "</think>So<end>", "hi").exit_code == 0
    assert last(backend) == "<user>hi<end><assistant><think></think>So<end>"
    assert "So<end>" not in backend.calls[-1].prompts[-1].marked  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["generate", "classify"])
@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--chat-template-kwargs", "{"), 2, "is not a JSON object"),
        (("--chat-template-kwargs", "[1]"), 2, "is not a JSON object"),
        (("--chat-template-kwargs", '{"messages": []}'), 2, "other than messages"),
        (("--chat-template-kwargs", '{"tone": 1}'), 2, "'tone' is not valid"),
        (("--chat-template-kwargs", json.dumps(OFF), "--thinking"), 2, "set the same variable"),
        (("--continue-final-message", "--new-turn"), 2, "not both"),
        (("--continue-final-message", "--opening", "a"), 2, "not both"),
    ],
)
def test_wrong_flags_are_refused_before_any_row(
    asked: Asked, backend: FakeBackend, command: str, flags: Any, code: int, words: str
) -> None:
    done = asked(command, *flags, "hi", "there")
    assert (done.exit_code, words in done.stderr) == (code, True), done.stderr
    assert backend.calls == []


def test_labels_are_read_after_the_thoughts(asked: Asked, backend: FakeBackend) -> None:
    labels = ("classify", "--labels", "a,b")
    assert asked(*labels, "--chat", "hi").exit_code == 0
    assert last(backend) == "<user>hi<end><assistant><think></think>"
    shown = asked(*labels, "--chat", "hi", "--show-prompt")
    assert shown.stdout == "<user>hi<end><assistant><think></think>\n"
    assert 'chat_template_kwargs: {"enable_thinking": false}' in shown.stderr

    refused = asked(*labels, "--thinking", "hi")
    assert refused.exit_code == 5
    assert "ends within the model's thoughts (<think>)" in refused.output
    opened = asked(*labels, "--thinking", "--opening", "</think>Topic:", "hi")
    assert opened.exit_code == 0
    assert last(backend).endswith("<think></think>Topic:")
    assert asked("classify", "--chat", "hi").exit_code == 0  # the next token is what it is
    assert last(backend).endswith("<think>")


def test_a_conversation_that_ends_with_the_answer_names_both_ways(
    asked: Asked, backend: FakeBackend, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": TURNS}) + "\n" + json.dumps({"messages": TURNS[:1]}))
    done = asked("generate", "-i", rows, "--json")
    first, second = map(json.loads, done.stdout.splitlines())
    assert (done.exit_code, second["error"]) == (5, None)
    for words in (
        "line 1 ends with an assistant message",
        "--continue-final-message",
        "--new-turn",
    ):
        assert words in first["error"]["message"]

    done = asked("generate", "-i", rows, "--json", "--continue-final-message", "--limit", "1")
    assert (done.exit_code, last(backend)) == (0, "<user>hi<end><assistant>Yes, ")
    done = asked("generate", "-i", rows, "--json", "--new-turn", "--limit", "1")
    prompt = "<user>hi<end><assistant>Yes, <end><assistant><think>"
    assert (done.exit_code, last(backend)) == (0, prompt)
    done = asked("generate", "-i", rows, "--json", "--continue-final-message")
    assert "the assistant's, not the user's" in done.stdout


def test_a_text_is_not_continued(asked: Asked, backend: FakeBackend) -> None:
    for chat in ((), ("--chat",)):
        done = asked("generate", "--continue-final-message", *chat, "hi", "there")
        assert (done.exit_code, "is a text; --continue-final" in done.output) == (5, True)
    assert backend.calls == []


@pytest.mark.parametrize(
    "flags",
    [
        *(("--thinking",), ("--no-thinking",), ("--opening", "a"), ("--continue-final-message",)),
        ("--chat-template-kwargs", "{}"),
    ],
)
def test_a_task_says_itself_what_is_asked(asked: Asked, tmp_path: Path, flags: Any) -> None:
    task = tmp_path / "task.toml"
    core_tasks.Task("{text} is", ("a", "b")).save(task)
    done = asked("classify", "--task", task, *flags, "hi")
    assert (done.exit_code, "cannot be combined with --task" in done.stderr) == (2, True)


def test_a_job_that_goes_on_asks_the_same(asked: Asked, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text('{"text": "hi"}\n')
    job = ("generate", "-i", rows, "-o", out)
    assert asked(*job, "--no-thinking").exit_code == 0
    assert asked(*job, "--chat-template-kwargs", json.dumps(OFF), "--resume").exit_code == 0
    for other in ((), ("--thinking",), ("--no-thinking", "--opening", "So"), ("--new-turn",)):
        done = asked(*job, *other, "--resume")
        assert (done.exit_code, "Cannot resume" in done.stderr) == (2, True), other


def test_requests_of_a_batch_say_it_themselves(
    asked: Asked, backend: FakeBackend, tmp_path: Path
) -> None:
    def line(**more: object) -> str:
        body = {"model": "m", "messages": TURNS, **more}
        return json.dumps({"custom_id": "a", "url": "/v1/chat/completions", "body": body})

    rows = tmp_path / "rows.jsonl"
    asks = [line(continue_final_message=True), line(chat_template_kwargs=OFF), line(tools=[])]
    rows.write_text("\n".join(asks))
    assert asked("generate", "-i", rows).exit_code == 0
    found = [prompt for call in backend.calls for prompt in call.prompts]
    turns = "<user>hi<end><assistant>Yes, "
    new = f"{turns}<end><assistant>"
    assert sorted(found) == sorted([turns, new + "<think></think>", new + "<think>"])

    assert asked("generate", "-i", rows, "--no-thinking").exit_code == 0
    assert last(backend) == new + "<think></think>"  # of those that say nothing themselves
    for flag in ("--continue-final-message", "--new-turn", "--opening=a"):
        done = asked("generate", "-i", rows, flag)
        assert (done.exit_code, "cannot be used with batch requests" in done.stderr) == (2, True)


def test_chat_takes_variables_and_an_opening(asked: Asked, backend: FakeBackend) -> None:
    done = asked("chat", "hi", "--opening", "Well, ")
    assert done.stdout == "Well, WELL, \n"  # the fake answers the last message
    [call] = backend.calls
    assert [turn.content for turn in call.messages] == ["hi", "Well, "]
    assert call.config.continue_final_message
    done = asked("chat", "hi", "--no-thinking")
    assert "'enable_thinking' is not valid" in done.stderr  # the fake's own chat reads none


def test_eval_reads_choices_after_the_thoughts(
    asked: Asked, backend: FakeBackend, tmp_path: Path
) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps({"question": "1 + 1 =", "answer": "2"}))
    done = asked("eval", "-i", items, "--no-thinking", "--opening", "It is", "--show-prompt")
    assert done.stdout == "<user>1 + 1 =<end><assistant><think></think>It is\n"
    assert 'chat_template_kwargs: {"enable_thinking": false}' in done.stderr
    done = asked("eval", "-i", items, "--chat-template-kwargs", '{"tone": 1}')
    assert (done.exit_code, "'tone' is not valid" in done.stderr) == (2, True)
