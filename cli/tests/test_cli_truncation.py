"""Texts that are longer than the context: what stays of them, how much, and at what cost."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.extensions import Tokenizing
from core.testing import FakeModel
from core.types import Conversation, Message
from core_cli.flags import Side
from core_cli.reading.row import InputError, Row
from core_cli.rows.prompts import PromptMaker, Truncation
from core_tasks.template import Template

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

SIDES: list[Side] = ["left", "right", "middle"]
TEMPLATE = Template("Say: {text} It is")


class Words:
    """A tokeniser of words, and of the bytes of what is none; counts what it has read."""

    def __init__(self) -> None:
        self.read = 0

    def encode(self, text: str) -> list[int]:
        self.read += len(text)
        pieces = re.findall(r" ?[a-zA-Z]+|(?s:.)", text)
        sizes = (1 if piece.isascii() else len(piece.encode()) for piece in pieces)
        return [0, *(0 for size in sizes for _ in range(size))]

    def decode(self, ids: Sequence[int]) -> str:
        raise NotImplementedError

    def render_chat(self, messages: Conversation, *_: Any, **__: Any) -> str:
        raise NotImplementedError


def maker(
    model: Tokenizing, side: Side, limit: int, template: Template | None = TEMPLATE
) -> PromptMaker:
    truncation = Truncation(side, limit)
    return PromptMaker(model, "fake", template, truncation=truncation, new_turn=True)


def is_kept(part: str, text: str, side: Side) -> bool:
    """Whether a part is what the side leaves of a text, character for character."""
    if side == "right":
        return text.startswith(part)
    if side == "left":
        return text.endswith(part)
    half = (len(part) + 1) // 2
    return text.startswith(part[:half]) and text.endswith(part[half:])


@pytest.mark.parametrize("side", SIDES)
def test_what_fits_stays_as_it_is(side: Side) -> None:
    for text in ("", "short", "x" * (40 - len("Say:  It is"))):
        assert maker(FakeModel(), side, 40).prompt(Row(1, text)) == f"Say: {text} It is"


@pytest.mark.parametrize("side", SIDES)
@given(
    words=st.lists(
        st.sampled_from(["one", "seventeen", "é", "你好", "👩‍👩‍👧", "\n", "1"]), min_size=1
    ),
    times=st.integers(1, 60),
    limit=st.integers(16, 90),
)
def test_the_template_stays_and_the_room_is_used(
    side: Side, words: list[str], times: int, limit: int
) -> None:
    text = " ".join(words * times)
    for model in (Words(), FakeModel()):
        assert isinstance(model, Tokenizing)
        prompt = maker(model, side, limit).prompt(Row(1, text))
        part = prompt.removeprefix("Say: ").removesuffix(" It is")
        assert prompt == f"Say: {part} It is"
        assert is_kept(part, text, side)
        size = len(model.encode(prompt))
        assert size <= limit
        if part != text:
            # The next character may have as many tokens as it has bytes.
            assert size > limit - 5


@pytest.mark.parametrize("side", SIDES)
def test_a_real_tokeniser(side: Side, smollm2_dir: Path) -> None:
    from tokenizers import Tokenizer

    real = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))

    class Real(Words):
        def encode(self, text: str) -> list[int]:
            ids: list[int] = real.encode(text).ids
            return ids

    source = Path(__file__).read_text(encoding="utf-8")
    for text in (source, "=" * 1_000_000, "你好👩‍👩‍👧" * 5000, "word " * 50_000, " " * 700_000):
        for limit in (20, 333, 2048):
            prompt = maker(Real(), side, limit).prompt(Row(1, text))
            part = prompt.removeprefix("Say: ").removesuffix(" It is")
            assert is_kept(part, text, side)
            size = len(real.encode(prompt).ids)
            assert limit - limit // 512 - 6 <= size <= limit, (text[:9], limit)


@pytest.mark.parametrize("side", SIDES)
def test_of_an_absurdly_long_text_a_part_is_tokenised(side: Side) -> None:
    for text in ("word " * 2_000_000, "你" * 10_000_000):
        model = Words()
        prompt = maker(model, side, 1000).prompt(Row(1, text))
        # No more than some times what fits, of ten million characters.
        assert model.read < 20 * max(len(prompt), 8 * 1000)


def test_no_room_for_a_text_is_its_row_s_error() -> None:
    with pytest.raises(
        InputError, match="The prompt is too long even with one character of the text: 12"
    ):
        maker(FakeModel(), "right", 11).prompt(Row(1, "some text"))


@pytest.mark.parametrize(("side", "kept"), [("left", "789"), ("right", "012"), ("middle", "019")])
def test_the_user_s_last_message_of_a_conversation_is_shortened(side: Side, kept: str) -> None:
    model = FakeModel()
    messages = (
        Message("system", "Be brief."),
        Message("user", "first"),
        Message("assistant", "yes"),
        Message("user", "0123456789"),
        Message("assistant", "It"),
    )
    shorter = (*messages[:3], Message("user", kept), messages[4])
    limit = len(model.encode(model.render_chat(shorter)))
    row = Row(1, "It", messages=messages)
    assert maker(model, side, limit, None).prompt(row) == model.render_chat(shorter)
    whole = PromptMaker(model, "fake", new_turn=True).prompt(row)
    assert whole == model.render_chat(messages)


def test_a_conversation_without_a_user_is_left_as_it_is() -> None:
    row = Row(1, "x", messages=(Message("assistant", "x" * 100),))
    model = FakeModel()
    assert len(model.encode(maker(model, "left", 20, None).prompt(row))) > 100


def test_truncation_on_the_command_line(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    """The fake's context is of 64 bytes."""
    file = tmp_path / "a.jsonl"
    conversation = {"messages": [{"role": "user", "content": "0123456789" * 100}]}
    lines = [{"text": "ab " * 100}, conversation, {"text": "fine"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ("classify", "-m", fake_model, "-i", file, "--json", "--truncate")
    for side, start in (("right", "<user>0123"), ("left", "<user>")):
        done = infer_cli(*flags, side)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.exit_code == 0, done.output
        # The fake's token is the prompt's last word, and its number the prompt's length.
        assert [row["token"]["id"] <= 64 for row in rows] == [True, True, True]
        assert rows[1]["token"]["text"].startswith(start)
        assert rows[1]["token"]["text"].endswith("</user>")
        assert rows[1]["token"]["id"] > 55
