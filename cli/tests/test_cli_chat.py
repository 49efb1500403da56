"""``infer-cli chat``: one answer, and a conversation on a terminal."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core
from core.kit.chat import borrowed_format, family_template
from core.options import GenerateConfig
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel, write_model
from core.types import Choice, Message
from core_cli.commands.chat import Talk
from core_cli.commands.conversation import Conversation, ConversationError
from core_cli.commands.display import Thoughts

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

pytestmark = pytest.mark.load  # a busy machine can make it fail

HELLO = [Message("user", "hello"), Message("assistant", "HELLO")]
PROMPT = "\x1b[?2004h"  # pasted text is to be marked: said whenever a line is about to be read
SCRIPT = """
import core
from core.testing import FakeBackend

def said(prompt):
    return " ".join(["over and over"] * 1000) if prompt == "long" else prompt.upper()

core.register(FakeBackend(said, name="scripted"))
from core_cli import main
main()
"""


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    fake = FakeBackend(str.upper, name="scripted")
    core.register(fake)
    yield fake
    REGISTRY._registered.pop("scripted")


@pytest.fixture
def model(tmp_path: Path) -> tuple[str, ...]:
    """The flags that name a model of the backend ``scripted``."""
    return "-m", str(write_model(tmp_path / "scripted")), "--backend", "scripted"


@pytest.fixture
def talk() -> Talk:
    return Talk(FakeModel(str.upper), GenerateConfig(), Conversation())


def test_a_message_is_answered(
    infer_cli: InferCli, model: tuple[str, ...], backend: FakeBackend
) -> None:
    done = infer_cli("chat", *model, "-s", "Be brief.", "hello", "you", "--max-tokens", "10")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "HELLO YOU\n", "")
    (call,) = backend.calls
    assert call.messages == (Message("system", "Be brief."), Message("user", "hello you"))
    assert call.config.max_tokens == 10
    piped = infer_cli("chat", *model, stdin="two\nlines\n")
    assert piped.stdout == "TWO\nLINES\n"
    assert infer_cli("chat", *model, stdin="\ufeffhello\r\n").stdout == "HELLO\n"


@pytest.mark.usefixtures("backend")
def test_no_message_is_an_error(infer_cli: InferCli, model: tuple[str, ...]) -> None:
    done = infer_cli("chat", *model)
    assert (done.exit_code, "No message" in done.stderr) == (2, True)
    assert infer_cli("chat", "x").exit_code == 2


# --------------------------------------------------------------------------- a conversation


def test_each_answer_is_part_of_the_next_question(talk: Talk) -> None:
    assert talk.answer("hello")
    assert talk.answer("again")
    assert talk.conversation.turns == [
        *HELLO,
        Message("user", "again"),
        Message("assistant", "AGAIN"),
    ]
    model = talk.model
    assert isinstance(model, FakeModel)
    assert model.calls[1].messages == (*HELLO, Message("user", "again"))


def test_of_a_message_that_fails_nothing_is_kept() -> None:
    model = FakeModel("", errors=lambda prompt: core.PromptTooLongError(9, 8))
    talk = Talk(model, GenerateConfig(), Conversation("s"))
    with pytest.raises(core.PromptTooLongError):
        talk.answer("hello")
    assert talk.conversation.messages() == [Message("system", "s")]


def test_the_commands(talk: Talk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk.answer("hello")
    talk.obey("/system Be brief.")
    assert talk.conversation.messages() == [Message("system", "Be brief.")]
    talk.answer("hello")
    talk.obey(f"/save {tmp_path / 'talk.jsonl'}")
    saved = json.loads((tmp_path / "talk.jsonl").read_text())
    assert [turn["role"] for turn in saved["messages"]] == ["system", "user", "assistant"]
    talk.obey("/reset")
    assert talk.conversation.messages() == [Message("system", "Be brief.")]
    talk.obey("/system")
    assert talk.conversation.messages() == []
    talk.obey(f"/load {tmp_path / 'talk.jsonl'}")
    assert talk.conversation == Conversation("Be brief.", HELLO)
    (tmp_path / "edited.jsonl").write_text(json.dumps(saved) + "\r\n", encoding="utf-8-sig")
    talk.obey("/reset")
    talk.obey(f"/load {tmp_path / 'edited.jsonl'}")
    assert talk.conversation == Conversation("Be brief.", HELLO)
    for line in ("/help", "/nonsense", "/save", "/load"):
        talk.obey(line)
    told = capsys.readouterr().err
    for words in ("Unknown command '/nonsense'.", "/save requires a file", "/reset          clear"):
        assert words in told


def test_a_cut_answer_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(FakeModel("one two three four"), GenerateConfig(max_tokens=2), Conversation())
    talk.answer("hello")
    assert capsys.readouterr().err == "(cut after 2 tokens; -n or /set max_tokens allows more)\n"
    talk.obey("/set max_tokens 99")
    talk.answer("hello")
    assert "cut" not in capsys.readouterr().err


def test_options_are_set_by_name(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    talk.obey("/set temperature 0.5")
    assert talk.config.temperature == 0.5
    for line in ("/set", "/set temperature", "/set warmth 3"):
        talk.obey(line)
        assert "/set requires a name and a value" in capsys.readouterr().err
    with pytest.raises(core.OptionError):
        talk.obey("/set temperature hot")
    assert talk.config.temperature == 0.5


def test_the_last_message_is_answered_again(talk: Talk) -> None:
    talk.obey("/regenerate")  # there is none
    talk.answer("hello")
    talk.answer("again")
    talk.conversation.turns[-1] = Message("assistant", "another answer")
    talk.obey("/regenerate")
    assert talk.conversation.turns[2:] == [Message("user", "again"), Message("assistant", "AGAIN")]
    talk.model.close()
    with pytest.raises(core.ModelClosedError):
        talk.obey("/regenerate")
    assert len(talk.conversation.turns) == 4


def long_after(turns: int) -> FakeModel:
    """A model with room for this many messages."""

    fake = FakeModel(str.upper, errors=lambda prompt: refusal())

    def refusal() -> Exception | None:
        messages = fake.calls[-1].messages or ()
        return core.PromptTooLongError(9, 8) if len(messages) > turns else None

    return fake


def test_the_oldest_messages_are_dropped_by_choice(capsys: pytest.CaptureFixture[str]) -> None:
    turns = [Message("user" if n % 2 == 0 else "assistant", str(n)) for n in range(6)]
    talk = Talk(long_after(4), GenerateConfig(), Conversation("system", [*turns]))
    with pytest.raises(core.PromptTooLongError):
        talk.answer("hello")
    assert talk.conversation.turns == turns
    talk.forget = True
    talk.answer("hello")
    assert talk.conversation.messages() == [Message("system", "system"), *turns[4:], *HELLO]
    assert "(the oldest 4 messages no longer fit)" in capsys.readouterr().err
    talk.obey("/forget")
    assert talk.conversation.turns == HELLO
    assert "Dropped 2 messages; 2 messages left." in capsys.readouterr().err


def test_a_message_that_alone_is_too_long_is_refused() -> None:
    talk = Talk(long_after(0), GenerateConfig(), Conversation(turns=[*HELLO]), forget=True)
    with pytest.raises(core.PromptTooLongError):
        talk.answer("hello")
    assert talk.conversation.turns == HELLO


@pytest.mark.parametrize("text", ["", "{", "[]", '{"messages": [5]}', "\udcff", '{"turns": []}'])
def test_a_file_that_holds_no_conversation(talk: Talk, tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text, encoding="utf-8", errors="surrogateescape")
    talk.answer("hello")
    with pytest.raises(ConversationError, match="messages"):
        talk.obey(f"/load {tmp_path / 'x'}")
    assert talk.conversation.turns == HELLO


@pytest.mark.parametrize("file", ["/dev/zero", "/", "\0", "~nobody-of-this-name/x", "/nowhere/x"])
def test_what_is_no_file_ends_nothing(talk: Talk, file: str) -> None:
    talk.answer("hello")
    for command in ("/load", "/save"):
        with pytest.raises((ConversationError, OSError)):
            talk.obey(f"{command} {file}")
    assert talk.conversation.turns == HELLO


def test_a_text_that_is_no_unicode_is_not_saved(talk: Talk, tmp_path: Path) -> None:
    talk.conversation.turns.append(Message("user", "\udcff"))
    with pytest.raises(ConversationError, match="Cannot save"):
        talk.obey(f"/save {tmp_path / 'x'}")
    assert not (tmp_path / "x").exists()


# --------------------------------------------------------------------------- a terminal


class Terminal:
    """Keys to a process, and what it shows."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self.shown = descriptor, ""

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, words: str) -> None:
        """Read until these words come, behind those that were waited for before."""
        while words not in self.shown:
            ready, _, _ = select.select([self._descriptor], [], [], 60)
            data = os.read(self._descriptor, 65536) if ready else b""
            assert data, f"{words!r} never came: {self.shown!r}"
            if b"\x1b[6n" in data:  # where is the cursor?
                self.press("\x1b[1;1R")
            self.shown += data.decode(errors="replace")
        self.shown = self.shown[self.shown.index(words) + len(words) :]


@pytest.fixture
def conversing(
    infer_cli: InferCli, model: tuple[str, ...]
) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """A conversation on a terminal, and the process that holds it."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    environment = {"TERM": "xterm-256color"}
    with infer_cli.start("chat", *model, script=SCRIPT, env=environment, **streams) as process:
        os.close(theirs)
        try:
            yield Terminal(ours), process
        finally:
            process.kill()
    os.close(ours)


def test_a_conversation_on_a_terminal(
    conversing: tuple[Terminal, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    terminal, process = conversing
    terminal.wait_for(PROMPT)
    terminal.press("hello\r")
    terminal.wait_for("HELLO")

    # Two lines are one message.
    terminal.wait_for(PROMPT)
    terminal.press("one\x1b\rtwo\r")
    terminal.wait_for("TWO")

    # Ctrl-C at the prompt forgets a line; in an answer it ends that, and not the program.
    terminal.wait_for(PROMPT)
    terminal.press("nev\x03")
    terminal.wait_for("Ctrl-D to leave.")
    terminal.wait_for(PROMPT)
    terminal.press("long\r")
    terminal.wait_for("over and over")
    process.send_signal(signal.SIGINT)
    terminal.wait_for(PROMPT)

    # Save, and leave.
    file = tmp_path / "talk.jsonl"
    terminal.press(f"/save {file}\r")
    terminal.wait_for(PROMPT)
    terminal.press("\x04")
    assert process.wait(60) == 0
    asked = [turn["content"] for turn in json.loads(file.read_text())["messages"]][::2]
    assert asked[:2] == ["hello", "one\ntwo"]
    assert "nev" not in "".join(asked)


# --------------------------------------------------------------------------- thoughts


def parts(*chunks: str, end: str | None = None) -> list[tuple[str, bool]]:
    """The parts of an answer, neighbours of a kind joined."""
    thoughts = Thoughts(end)
    parts = [part for chunk in chunks for part in thoughts.feed(chunk)] + [*thoughts.rest()]
    kinds = itertools.groupby(parts, key=lambda part: part[1])
    joined = [("".join(text for text, _ in group), kind) for kind, group in kinds]
    return [part for part in joined if part[0]]


def test_thoughts_are_told_from_text() -> None:
    whole = "<think>\nHm < 3?</th\n</think>\n\nFour <think> is a mark."
    expected = [("\nHm < 3?</th\n", True), ("\n\nFour <think> is a mark.", False)]
    assert parts(whole) == parts(*whole) == expected
    assert parts("so</think>4", end="</think>") == [("so", True), ("4", False)]
    assert parts("<thin", "king>no end</thi") == [("no end</thi", True)]
    assert parts("<b>4", "</think>") == [("<b>4</think>", False)]
    assert parts("  ", "<thi") == [("  <thi", False)]


@pytest.fixture
def thinker() -> FakeModel:
    return FakeModel("<think>\nLet me see.\n</think>\n\nFour.")


def test_thoughts_are_hidden_on_request(
    thinker: FakeModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(thinker, GenerateConfig(), Conversation())
    talk.answer("hello")
    assert capsys.readouterr().out == "<think>\nLet me see.\n</think>\n\nFour.\n"
    talk.hides_thoughts = True
    talk.answer("hello")
    assert capsys.readouterr().out == "Four.\n"
    assert talk.conversation.turns[-1].content.startswith("<think>")

    talk.hides_thoughts = False
    monkeypatch.setattr("core_cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    talk.answer("hello")
    assert capsys.readouterr().out == "\x1b[2mLet me see.\n\x1b[22m\n\nFour.\n"
    monkeypatch.setenv("NO_COLOR", "1")
    talk.answer("hello")
    assert capsys.readouterr().out.startswith("<think>")


# --------------------------------------------------------------------------- models


def test_another_model_continues_the_conversation(
    talk: Talk, capsys: pytest.CaptureFixture[str]
) -> None:
    former, other = talk.model, FakeModel("other")
    models = {"other": other}
    talk.load, talk.name, talk.fills_context = models.__getitem__, "former", True
    talk.answer("hello")
    talk.obey("/model")
    assert "The model is former." in capsys.readouterr().err
    with pytest.raises(KeyError):
        talk.obey("/model unknown")
    talk.answer("again")
    talk.obey("/model other")
    assert talk.config.max_tokens == other.info.context_length
    with pytest.raises(core.ModelClosedError):
        next(former.chat(HELLO[:1]))
    talk.answer("hello")
    assert talk.conversation.turns[-1] == Message("assistant", "other")
    assert len(talk.conversation.turns) == 6


def test_the_last_message_is_edited(talk: Talk) -> None:
    talk.obey("/edit")
    assert talk.draft == ""
    talk.answer("hello")
    talk.obey("/edit")
    assert (talk.draft, talk.conversation.turns) == ("hello", [])


class Borrowing(FakeModel):
    """A model that uses the chat format of its family."""

    def choices(self) -> list[Choice]:
        return [*borrowed_format(family_template("gemma3", {"<start_of_turn>"}))]


def test_a_model_without_a_template_is_said_to_be_one(
    infer_cli: InferCli,
    model: tuple[str, ...],
    backend: FakeBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert infer_cli("chat", *model, "hello").stderr == ""
    monkeypatch.setattr(FakeBackend, "load_model", lambda *_: Borrowing("hi"))
    done = infer_cli("chat", *model, "hello")
    assert done.stderr == (
        "Note: the model has no chat template of its own, and may be a base model; the chat "
        "format of Gemma is used.\n"
    )
    assert borrowed_format("{{ messages }}") == borrowed_format(None) == ()


@pytest.mark.slow
def test_a_base_model_is_said_to_be_one(infer_cli: InferCli, gemma3_gguf: Path) -> None:
    done = infer_cli("chat", "-m", gemma3_gguf, "hello", "-n", "2")
    assert "the chat format of Gemma is used." in done.stderr


def test_info_says_whether_there_is_a_chat_template(
    infer_cli: InferCli, gemma3_dir: Path, gemma3_gguf: Path, smollm2_dir: Path
) -> None:
    own = {
        place: "the model's own" if place == smollm2_dir else "none of its own"
        for place in (gemma3_dir, gemma3_gguf, smollm2_dir)
    }
    for place, text in own.items():
        assert f"chat template:    {text}\n" in infer_cli("info", place).stdout
