"""Stop strings that hold the text of a special token, which the generated text leaves out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kit.text_stream import StopMatcher, StreamDetokenizer, TokenAssembler
from core.types import Token

USER, MARK, OTHER = "<u>", "<m>\n", "\x00"
SPECIAL = {100: USER, 101: MARK, 102: OTHER, 103: USER}  # two ids may have one text
Piece = str | int  # the text of a plain token, or the id of a special one


def tokens_of(pieces: Sequence[Piece | bytes]) -> tuple[StreamDetokenizer, list[int]]:
    """A detokenizer, and the ids of these tokens: a plain one's is its place."""
    plain = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]

    def token_bytes(token_id: int, first: bool) -> bytes | None:
        data = plain[token_id] if token_id < len(plain) else None
        return data if isinstance(data, bytes) else None

    ids = [piece if isinstance(piece, int) else place for place, piece in enumerate(pieces)]
    return StreamDetokenizer(token_bytes), ids


def assembled(
    pieces: Sequence[Piece | bytes], stops: Sequence[str], ends: Sequence[int] = ()
) -> tuple[list[Token], bool]:
    """The tokens up to a stop string, or before an id of ``ends``; and whether one of them came."""
    detokenizer, ids = tokens_of(pieces)
    assembler = TokenAssembler(detokenizer, stops, SPECIAL)
    found: list[Token] = []
    for token_id in ids:
        if token_id in ends:
            return found + assembler.finish(), True
        found += assembler.add(token_id, -0.5)
        if assembler.stopped:
            break
    found += assembler.finish()
    return found, assembler.stopped


def texts(tokens: Sequence[Token]) -> list[str]:
    return [token.text for token in tokens]


@pytest.mark.parametrize(
    ("pieces", "stop", "left"),
    [
        (["a", "b", 100, "c"], USER, ["a", "b"]),
        (["a", "b", 103, "c"], USER, ["a", "b"]),  # another id of this text
        ([100, "c"], USER, []),
        (["a", "b", 100, "c"], f"b{USER}", ["a"]),
        (["a", "xb", 100, "c"], f"b{USER}", ["a", "x"]),
        (["a", 100, "cd"], f"{USER}c", ["a"]),
        (["a", 100, 101, "cd"], f"{USER}{MARK}c", ["a"]),
        (["a", "\n", 100], f"\n{USER}", ["a"]),
        (["a", 101, "b"], MARK, ["a"]),
        (["a", 102, "b"], OTHER, ["a"]),
        (["a<", 100, "b"], USER, ["a<"]),  # held, for it might have spelled it
        (["a", "<", "u", ">", "b"], USER, ["a"]),  # plain text that spells it
        (["a", "<u", ">b"], f"{USER}b", ["a"]),
        (["a", 101, 100, "b"], USER, ["a", ""]),  # what no stop string holds stays a token
        (["a", "<", 101, 100, "b"], USER, ["a", "<", ""]),
        (["a", 101, 100], f"a{USER}", []),  # and is left out as in the text
    ],
)
def test_the_text_ends_before_it(pieces: list[Piece], stop: str, left: list[str]) -> None:
    found, stopped = assembled(pieces, [stop])
    assert (texts(found), stopped) == (left, True)
    assert {token.logprob for token in found} <= {-0.5}


@pytest.mark.parametrize(
    ("pieces", "stop"),
    [
        (["a", 100, "b"], f"{USER}c"),
        (["a", 100, "b"], f"b{USER}"),
        (["a", 100, "b"], "u"),  # a part of a special token's text is not one
        (["a", 100, "b"], ">"),
        (["a", 100, "b"], "u>b"),
        (["a", 101, "b"], "\n"),
        (["a", 101, "b"], USER),
    ],
)
def test_what_does_not_come_whole_changes_nothing(pieces: list[Piece], stop: str) -> None:
    found, stopped = assembled(pieces, [stop])
    assert (texts(found), stopped) == (["a", "", "b"], False)


def test_tokens_come_out_as_soon_as_they_are_settled() -> None:
    detokenizer, ids = tokens_of(["a", 100, "b", 100, "\n", "c"])
    assembler = TokenAssembler(detokenizer, [f"{USER}\n"], SPECIAL)
    steps = [texts(assembler.add(token_id)) for token_id in ids]
    assert steps == [["a"], [], ["", "b"], [], [], []]
    assert assembler.stopped


@pytest.mark.parametrize(
    ("pieces", "stops", "left"),
    [
        (["a", 100, "b"], ["ab", f"{USER}c"], ""),  # as in the text, without special tokens
        (["ab", 100], ["ab", "abc", USER], ""),  # it had come, and a longer one was possible
        (["ab", 100], ["abc", USER], "ab"),
        (["a", 100, "b"], [f"a{USER}b", "b"], ""),  # both are complete: the one that begins first
        (["a", 100, "b", 101], [f"a{USER}b{MARK}", "b"], "a"),  # the one that is complete first
        (["a", 100, "b", "c"], [f"a{USER}b{MARK}", "bc"], "a"),
    ],
)
def test_of_several_the_first_one_ends_the_text(
    pieces: list[Piece], stops: list[str], left: str
) -> None:
    for order in (stops, stops[::-1]):
        found, stopped = assembled(pieces, order)
        assert ("".join(texts(found)), stopped) == (left, True)


broken = st.sampled_from([b"a", b"b<", b"\xc3", b"\xa9", b"\xf0\x9f", 101, 102])


@given(st.lists(broken, max_size=6))
def test_a_stop_string_that_is_a_special_token_is_as_its_id_in_stop_tokens(
    before: list[bytes | int],
) -> None:
    """Also behind half of a character, which comes out as U+FFFD."""
    pieces = [*before, 100, b"c"]
    assert assembled(pieces, [USER]) == assembled(pieces, [], ends=[100])


pieces_of_both = st.lists(st.text("ab", max_size=3) | st.sampled_from([100, 101, 103]), max_size=8)
stops_of_both = st.lists(
    st.lists(st.sampled_from(["a", "b", USER, MARK]), min_size=1, max_size=4).map("".join),
    max_size=3,
)


@given(pieces_of_both, stops_of_both)
def test_both_readings_against_searches_in_them(pieces: list[Piece], stops: list[str]) -> None:
    """Token by token: as soon as a search in one of the texts is over, what begins first cuts."""
    named = {id for id, text in SPECIAL.items() if any(text in stop for stop in stops)}
    shown_stops = [stop for stop in stops if any(SPECIAL[id] in stop for id in named)]
    plain, shown, is_plain = "", "", list[bool]()
    cuts, over = (0, 0), False
    for count, piece in enumerate(pieces, 1):
        mark = SPECIAL[piece] if isinstance(piece, int) and piece in named else ""
        text = piece if isinstance(piece, str) else ""
        plain, shown = plain + text, shown + (text or mark)
        is_plain += [bool(text)] * len(text or mark)

        searches = (StopMatcher(stops), plain), (StopMatcher(shown_stops), shown)
        given_out = [search.feed(text) for search, text in searches]
        over = any(search.matched for search, _ in searches)
        if over or count == len(pieces):
            ends = [search.finish() for search, _ in searches]
            one, other = map(len, map(str.__add__, given_out, ends))
            cuts, over = (one, other), any(search.matched for search, _ in searches)
        if over:
            break

    found, stopped = assembled(pieces, stops)
    left = plain[: min(cuts[0], sum(is_plain[: cuts[1]]))] if over else plain
    assert ("".join(texts(found)), stopped) == (left, over)
    assert [token.id for token in found] == tokens_of(pieces)[1][: len(found)]
    assert stopped or len(found) == len(pieces)
