"""Stop strings and token texts against their plain definitions on the whole text."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kit import text_stream
from core.kit.text_stream import StopMatcher, StreamDetokenizer, TokenAssembler
from core.types import Token


class ByteDetokenizer:
    """Token ``i`` is the i-th of the given byte strings."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._tokens = tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def incomplete(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def add(self, token_id: int) -> str:
        return self._decoder.decode(self._tokens[token_id])

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


def first_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The plain definition: the text before the earliest, longest stop string, and that string."""
    found = [(text.find(stop), -len(stop), stop) for stop in stops if stop in text]
    start, _, stop = min(found, default=(len(text), 0, None))
    return text[:start], stop


def matched(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    text = "".join(map(matcher.feed, pieces)) + matcher.finish()
    return text, matcher.matched


def assembled(tokens: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[list[Token], bool]:
    assembler = TokenAssembler(ByteDetokenizer(tokens), stops)
    out = [token for index in range(len(tokens)) for token in assembler.add(index)]
    return out + assembler.finish(), assembler.stopped


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(borders)]


few_letters = st.text("ab", max_size=12)
stop_sets = st.lists(st.text("abc", min_size=1, max_size=5), max_size=5)


# ---------------------------------------------------------------- stop strings


@given(st.lists(few_letters | st.text("abc", max_size=3), max_size=8), stop_sets)
def test_matches_are_those_of_a_search_in_the_whole_text(
    pieces: list[str], stops: list[str]
) -> None:
    assert matched(pieces, stops) == first_stop("".join(pieces), stops)


@given(st.text("ab", max_size=40), stop_sets)
def test_the_pieces_do_not_matter(text: str, stops: list[str]) -> None:
    assert matched(list(text), stops) == matched([text], stops)


@given(st.text("abc", max_size=20), stop_sets)
def test_no_more_is_held_back_than_may_begin_a_match(text: str, stops: list[str]) -> None:
    text = first_stop(text, stops)[0]
    beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
    held = max((n for n in range(len(text) + 1) if text[len(text) - n :] in beginnings), default=0)
    if first_stop(text, stops)[1] is None:
        assert StopMatcher(stops).feed(text) == text[: len(text) - held]


@pytest.mark.parametrize(
    ("text", "stops", "before", "stop"),
    [
        ("one\ntwo", ["\n"], "one", "\n"),
        ("xabcd", ["bc", "abcd"], "x", "abcd"),  # the earlier one ends later
        ("xabce", ["bc", "abcd"], "xa", "bc"),
        ("xabc", ["bc", "abcd"], "xa", "bc"),  # the text ends
        ("x\n\ny", ["\n", "\n\n"], "x", "\n\n"),  # the longer one
        ("aab", ["ab"], "a", "ab"),
        ("aaaab", ["aaab", "aaaac"], "a", "aaab"),
        ("ab", ["abc"], "ab", None),
        ("abc", [], "abc", None),
        ("", ["a"], "", None),
    ],
)
def test_the_earliest_match_wins_then_the_longest(
    text: str, stops: list[str], before: str, stop: str | None
) -> None:
    assert matched([text], stops) == (before, stop)


def test_a_match_is_known_with_its_last_character() -> None:
    matcher = StopMatcher(["###", "END"])
    assert (matcher.feed("a EN"), matcher.matched) == ("a ", None)
    assert (matcher.feed("D"), matcher.matched) == ("", "END")
    assert (matcher.feed("more"), matcher.finish(), matcher.matched) == ("", "", "END")


@pytest.mark.parametrize("piece", [1, 1000])
def test_time_does_not_grow_with_the_length_of_a_stop_string(piece: int) -> None:
    def lines(stop_length: int) -> int:
        matcher = StopMatcher(["a" * stop_length + "b", "a" * (stop_length // 2) + "c"])
        text = ("a" * (stop_length - 1) + "x") * 4 + "a" * 4000
        pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
        count = executed_lines(lambda: [matcher.feed(part) for part in pieces])
        assert matcher.matched is None
        return count // len(text)

    assert lines(1000) <= lines(10)


def executed_lines(run: Any) -> int:
    """How many lines of the module under test a call executes: its time, without a clock."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != text_stream.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


# ---------------------------------------------------------------- tokens

characters = st.sampled_from("ab\n é½न你\ufffd😀")
cuts = st.lists(st.integers(1, 80), max_size=40)
character_stops = st.lists(st.text(characters, min_size=1, max_size=3), max_size=4)


@given(st.lists(st.binary(max_size=6), max_size=12), character_stops)
def test_the_texts_are_the_text_up_to_the_stop_for_any_bytes(
    tokens: list[bytes], stops: list[str]
) -> None:
    out, stopped = assembled(tokens, stops)
    text, stop = first_stop(b"".join(tokens).decode(errors="replace"), stops)
    assert "".join(token.text for token in out) == text
    assert stopped == (stop is not None)
    assert [token.id for token in out] == list(range(len(out)))
    assert stopped or len(out) == len(tokens)


@given(st.text(characters, max_size=25), cuts, character_stops)
def test_tokens_up_to_the_stop_come_out_and_no_others(
    text: str, cuts: list[int], stops: list[str]
) -> None:
    tokens = cut(text.encode(), cuts)
    before = len(first_stop(text, stops)[0].encode())
    starts = accumulate(map(len, tokens[:-1]), initial=0) if tokens else ()
    expected = [index for index, start in enumerate(starts) if start < before]
    assert [token.id for token in assembled(tokens, stops)[0]] == expected


@given(st.text(characters, max_size=25), cuts)
def test_a_split_character_belongs_to_the_last_of_its_tokens(text: str, cuts: list[int]) -> None:
    tokens = cut(text.encode(), cuts)
    ends = list(accumulate(map(len, tokens), initial=0))
    whole = [text.encode()[:end].decode(errors="ignore") for end in ends]
    expected = [after[len(before) :] for before, after in pairwise(whole)]
    assert [token.text for token in assembled(tokens)[0]] == expected


def test_whole_tokens_come_out_at_once() -> None:
    tokens = [b"one", b" two", "é".encode(), b"", b" three"]
    assembler = TokenAssembler(ByteDetokenizer(tokens), ["###"])
    for index, token in enumerate(tokens):
        assert assembler.add(index, -0.5) == [Token(index, token.decode(), -0.5)]
    assert assembler.finish() == []


def test_a_token_waits_for_its_character_and_for_what_may_be_a_stop_string() -> None:
    tokens = [b"a#", b"#\xc3", b"", b"\xa9", b"#", b"\n\xe4"]
    assembler = TokenAssembler(ByteDetokenizer(tokens), ["###", "\n\n"])
    added = [[token.text for token in assembler.add(index)] for index in range(len(tokens))]
    assert added == [[], [], [], ["a#", "#", "", "é"], [], ["#"]]
    assert [token.text for token in assembler.finish()] == ["\n\ufffd"]


def test_a_lead_byte_that_is_followed_by_another_does_not_stall_the_stream() -> None:
    assembler = TokenAssembler(ByteDetokenizer([b"\xc3"]), ["\ufffd\ufffd\ufffdx"])
    texts = [[token.text for token in assembler.add(0)] for _ in range(8)]
    assert texts[-3:] == [["\ufffd"]] * 3


def test_a_stop_string_of_split_characters_takes_its_first_token_along() -> None:
    out, stopped = assembled([b"a", b"b\xc3", b"\xa9", b"c"], ["é"])
    assert ([token.text for token in out], stopped) == (["a", "b"], True)
    out, stopped = assembled([b"a", b"\xc3", b"\xa9", b"c"], ["é"])
    assert ([token.text for token in out], stopped) == (["a"], True)


def test_nothing_comes_out_behind_the_stop_string() -> None:
    assembler = TokenAssembler(ByteDetokenizer([b"ab#", b"#c", b"d"]), ["##"])
    assert list(_texts(assembler, 3)) == ["ab"]
    assert (assembler.finish(), assembler.stopped) == ([], True)


def test_what_is_held_when_the_text_ends_comes_out_once() -> None:
    assembler = TokenAssembler(ByteDetokenizer([b"a", b"#", b"#", b"\xf0\x9f"]), ["###"])
    assert list(_texts(assembler, 4)) == ["a"]
    finished = [(token.id, token.text) for token in assembler.finish()]
    assert finished == [(1, "#"), (2, "#"), (3, "\ufffd")]
    assert assembler.finish() == []


def test_a_stop_string_may_end_with_the_left_over_bytes() -> None:
    out, stopped = assembled([b"a", b"b", b"\xf0"], ["b\ufffd"])
    assert ([token.text for token in out], stopped) == (["a"], True)


def _texts(assembler: TokenAssembler, count: int) -> Iterator[str]:
    for index in range(count):
        yield from (token.text for token in assembler.add(index))


# Token 0 has no text, as special tokens have none; an id beyond the list is no token at all.
VOCABULARY = [None, b" a", b"b", "\u00e9".encode()[:1], "\u00e9".encode()[1:], b"\xf0\x9f", b" "]


def token_bytes(token_id: int, first: bool) -> bytes | None:
    data = VOCABULARY[token_id] if token_id < len(VOCABULARY) else None
    return data.removeprefix(b" ") if data and first else data


def streamed(ids: Sequence[int], prompt: Sequence[int] = (), per_byte: bool = False) -> list[str]:
    stream = StreamDetokenizer(token_bytes, prompt, per_byte)
    return [*map(stream.add, ids), stream.finish()]


def test_a_character_comes_out_whole_with_its_last_token() -> None:
    assert streamed([2, 3, 4]) == ["b", "", "\u00e9", ""]
    stream = StreamDetokenizer(token_bytes)
    stream.add(3)
    assert stream.incomplete
    stream.add(4)
    assert not stream.incomplete


def test_a_prompt_may_end_inside_a_character() -> None:
    assert streamed([4, 2], prompt=[1, 2, 0, 3, 0, 99]) == ["\u00e9", "b", ""]


def test_tokens_without_text_say_nothing_and_are_no_first_one() -> None:
    assert streamed([0, 99, 1, 1]) == ["", "", "a", " a", ""]
    assert streamed([6, 1]) == ["", " a", ""]
    assert streamed([1], prompt=[0]) == ["a", ""]
    assert streamed([1], prompt=[2]) == [" a", ""]


def test_broken_bytes_become_one_mark_or_one_each() -> None:
    assert streamed([5, 2]) == ["", "\ufffdb", ""]
    assert streamed([5, 2], per_byte=True) == ["", "\ufffd\ufffdb", ""]
    assert streamed([5]) == ["", "\ufffd"]
    assert streamed([5], per_byte=True) == ["", "\ufffd\ufffd"]
