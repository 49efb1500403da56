"""The messages, and the cutting of a stream into lines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.options import GenerateConfig
from core_mlx_lm_bridge import protocol
from core_mlx_lm_bridge.protocol import (
    Cancel,
    Chat,
    ChatTurn,
    Done,
    Error,
    Generate,
    Info,
    LineSplitter,
    Load,
    Ok,
    ProtocolError,
    ProtocolMessage,
    Quit,
    TokenAnswer,
)

REQUESTS: list[ProtocolMessage] = [
    Load(id=1, path="/models/ü", version=1, context_len=8, adapter_path="/a", cpu=True),
    Info(id=2),
    Generate(id=3, prompt='a "b"\n', seed=2**64 - 1, stop_tokens=[1, 2], temperature=0.5),
    Chat(
        id=4, messages=[ChatTurn("user", "\u2028"), ChatTurn("assistant", "")], return_logprobs=True
    ),
    Cancel(id=4),
    Quit(),
]
ANSWERS: list[ProtocolMessage] = [
    Ok(id=1, version=1, model_type="llama", vocab_size=9, layers=2, hidden_size=8),
    TokenAnswer(id=3, token="é\n", token_id=5, logprob=-0.25, open=True),
    Done(id=3, finish_reason="length", prompt_tokens=3, prompt_tps=1.5),
    Error(id=3, error="PromptTooLongError", message="too long", length=9, limit=8),
]


@pytest.mark.parametrize("message", REQUESTS, ids=lambda m: type(m).__name__)
def test_requests_survive(message: ProtocolMessage) -> None:
    line = protocol.encode(message)
    assert line.count(b"\n") == 1
    assert protocol.decode_request(line.rstrip()) == message


@pytest.mark.parametrize("message", ANSWERS, ids=lambda m: type(m).__name__)
def test_answers_survive(message: ProtocolMessage) -> None:
    assert protocol.decode_answer(protocol.encode(message)) == message


def test_field_names() -> None:
    """Those that other implementations of either side know."""
    names = {
        Load: {"path"},
        Generate: {"prompt", "max_tokens", "temperature", "top_k", "top_p"},
        Chat: {"messages", "max_tokens", "temperature", "top_k", "top_p"},
        Ok: {"model_type", "vocab_size", "layers", "hidden_size"},
        TokenAnswer: {"token", "token_id"},
        Done: {"done"},
    }
    for kind, expected in names.items():
        assert expected <= set(kind.__struct_fields__), kind
    assert json.loads(protocol.encode(Done(id=1)))["done"] is True


def test_the_options_are_those_of_a_config_with_its_defaults() -> None:
    """The worker has no `core` to derive them from."""
    config, options = GenerateConfig(), protocol.GenerationOptions()
    names = set(protocol.GenerationOptions.__struct_fields__) - {"id"}
    for name in names - {"stop_tokens"}:  # which JSON makes a list
        assert getattr(options, name) == getattr(config, name), name
    assert "stop_tokens" in names


def test_unknown_fields_are_ignored() -> None:
    line = b'{"type":"generate","id":3,"prompt":"a","new_field":{"deep":[1]}}'
    assert protocol.decode_request(line) == Generate(id=3, prompt="a")


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"type":"dance","id":7}', 7),
        (b'{"type":"generate","id":7,"max_tokens":"many"}', 7),
        (b'{"id":7}', 7),
        (b'{"type":"token","id":7}', 7),  # an answer is no request
        (b'{"type":"generate","id":7,"prompt":"\xff"}', 7),
        (b"[" * 100_000, 0),
        (b"Loading weights: 100%", 0),
        (b"", 0),
    ],
)
def test_what_is_no_request(line: bytes, id: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        protocol.decode_request(line)
    assert caught.value.id == id
    assert len(str(caught.value)) < 500


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b""))), st.data())
def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    borders = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    reader = LineSplitter(20)
    found = []
    for start, end in pairwise([0, *borders, len(whole)]):
        found += reader.feed(whole[start:end])
    assert found == lines


@pytest.mark.parametrize("data", [b"abcdef", b"abcdef\n", b"ab\nabcdef\nab\n"])
def test_a_line_that_is_too_long(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="longer than 5"):
        LineSplitter(5).feed(data)


def mutated(dice: random.Random, line: bytes) -> bytes:
    """A line with a few bytes changed, lost, doubled, or put in; or two lines made into one."""
    data = bytearray(line)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(data) + 1)
        change = dice.randrange(5)
        if change == 0 and place < len(data):
            data[place] = dice.randrange(256)
        elif change == 1:
            del data[place : place + dice.randint(1, 9)]
        elif change == 2:
            data[place:place] = bytes(dice.choices(range(256), k=dice.randint(1, 5)))
        elif change == 3:
            data[place:place] = dice.choice([b'"', b"{", b"}", b"[", b",", b"\\", b"\\ud800", b"9"])
        else:
            data[place:place] = data[: dice.randint(0, 40)]
    return bytes(data).replace(b"\n", b" ")


@pytest.mark.parametrize(
    ("messages", "decode", "kinds"),
    [
        (REQUESTS, protocol.decode_request, (Load, Info, Generate, Chat, Cancel, Quit)),
        (ANSWERS, protocol.decode_answer, (Ok, TokenAnswer, Done, Error)),
    ],
    ids=["requests", "answers"],
)
def test_fuzz(
    messages: list[ProtocolMessage],
    decode: Callable[[bytes], ProtocolMessage],
    kinds: tuple[type, ...],
) -> None:
    """10,000 broken lines: each is a message of the right kind, or a ProtocolError."""
    dice = random.Random(7)
    lines = [protocol.encode(message).rstrip() for message in messages]
    refused = 0
    for _ in range(10_000):
        try:
            assert isinstance(decode(mutated(dice, dice.choice(lines))), kinds)
        except ProtocolError:
            refused += 1
    assert 2_000 < refused < 10_000  # else the mutations are too mild, or too wild
