"""Equal rows are computed once, and their results are equal and each its own."""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from sys import getsizeof
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core
from core.errors import CoreError, InvalidModelError, OutOfMemoryError
from core.kit.base import RequestClock
from core.kit.support import REFUSABLE
from core.options import GenerateConfig
from core.types import ClassifyResult, Score, Token
from core_runtime import classifying
from core_runtime.equal_rows import EqualRows, Remembered
from core_runtime.reading import ReadingModel
from core_runtime.rows import PromptRow, ScoreRow
from core_runtime.text.special_texts import SpecialTexts

Key = tuple[bytes, object]
CAPABILITIES = frozenset(core.Capability)


class Letters:
    """A tokenizer with a token for each character."""

    special_texts = SpecialTexts({})

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        return [self.encode(prompt + continuation) for continuation in continuations]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def last_cut(self, text: str) -> int:
        return 0

    def fewest_tokens(self, text: str) -> int:
        return len(text)


SERVED: Any = SimpleNamespace(
    tokenizer=Letters(),
    info=SimpleNamespace(context_length=1000, vocab_size=2**20),
    own_context=1000,
    memory=lambda: SimpleNamespace(peak=0, active=0),
)


def value_of(row: PromptRow) -> float:
    """What a row says: a function of its tokens, and of where its labels begin."""
    return float(sum(row.ids) * 31 + row.anchor)


class Counting:
    """Computes a block's rows in reverse, and counts them. Rows with an ``x`` fail."""

    def __init__(self, config: GenerateConfig, computed: list[PromptRow], error: CoreError) -> None:
        self.config, self.computed, self.error = config, computed, error
        self.reused = 0

    def results(
        self, blocks: Iterable[Sequence[PromptRow]]
    ) -> Iterator[tuple[PromptRow, ClassifyResult]]:
        for block in blocks:
            assert block  # nothing to compute is no block
            self.computed += block
            for row in reversed(block):
                yield row, self.result(row)

    def result(self, row: PromptRow) -> ClassifyResult:
        if ord("x") in row.ids:
            return ClassifyResult(error=self.error)
        found = value_of(row)
        labels = dict.fromkeys(self.config.labels, found) or None
        logits = array("f", [found]) * 1000 if self.config.return_logits else None
        return ClassifyResult(Token(1, "a"), logits, probabilities=labels, logprobs=labels)


class Model(ReadingModel):
    """A model whose classifier is `Counting`, and whose scorer is `Scorer`."""

    model_type = "counting"
    honours = REFUSABLE

    def __init__(self, error: CoreError | None = None) -> None:
        super().__init__("counting", SERVED, SimpleNamespace(), CAPABILITIES)  # type: ignore[arg-type]
        self.computed: list[PromptRow] = []
        self.error = error or InvalidModelError("not a number")
        self.counting_scorer = Scorer()

    def classifier(self, request: GenerateConfig, clock: RequestClock) -> Counting:
        return Counting(request, self.computed, self.error)

    def scorer(self, clock: RequestClock) -> Scorer:
        return self.counting_scorer

    def state_reader(self, layers: tuple[int, ...], clock: RequestClock) -> Any:
        raise NotImplementedError

    def release(self) -> None:
        """Nothing is held."""


def texts_of(model: Model) -> list[str]:
    """What was computed, in order."""
    return [Letters().decode(row.ids) for row in model.computed]


LABELLED: dict[str, Any] = {"labels": ("yes", "no")}
SHARED: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 3},
    LABELLED,
    {"temperature": 0.8, "labels_only": True, **LABELLED},  # nothing is drawn
]


@pytest.mark.parametrize("options", SHARED, ids=str)
def test_equal_prompts_are_computed_once(options: dict[str, Any]) -> None:
    model = Model()
    prompts = ["ab", "c", "ab", "ab", "c", "abc"]
    results = model.classify(prompts, **options)
    assert sorted(texts_of(model)) == ["ab", "abc", "c"]
    again = Model()
    again.equal_rows = False
    assert results == again.classify(prompts, **options)
    assert len(again.computed) == 6
    assert (model.metrics.prompt_tokens, model.metrics.generated_tokens) == (11, 6)
    assert model.metrics.cached_prompt_tokens == 5  # two of ab, one of c
    assert again.metrics.cached_prompt_tokens == 0


@pytest.mark.parametrize("options", [{"temperature": 0.8}, {"temperature": 0.8, **LABELLED}])
def test_each_row_draws_for_itself_without_a_seed(options: dict[str, Any]) -> None:
    model = Model()
    model.classify(["ab", "ab"], **options)
    assert texts_of(model) == ["ab", "ab"]


def test_equal_prompts_of_other_blocks_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifying, "_LIST", (2, 2))
    monkeypatch.setattr(classifying, "_STREAM", (2, 2))
    model = Model()
    prompts = ["a", "b", "b", "a", "b", "b", "c", "a"]
    results = model.classify(prompts, **LABELLED)
    assert sorted(texts_of(model)) == ["a", "b", "c"]
    assert [result.logprobs["no"] for result in results if result.logprobs] == [
        float(ord(prompt) * 31 + 1) for prompt in prompts
    ]
    model.computed.clear()
    assert list(model.classify_iter(iter(prompts), **LABELLED)) == results
    assert sorted(texts_of(model)) == ["a", "b", "c"]
    assert model.metrics.cached_prompt_tokens == 5
    assert model.metrics.prompt_tokens == 8


def test_no_result_shares_what_its_reader_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifying, "_STREAM", (2, 2))
    options: dict[str, Any] = {**LABELLED, "return_logits": True}
    [wanted] = Model().classify(["ab"], **options)
    model = Model()
    for result in model.classify_iter(["ab"] * 9, **options):
        assert result == wanted
        assert result.logits == wanted.logits
        for values in (result.logits, result.probabilities, result.logprobs):
            assert values is not None
        result.logits[0] = -1.0  # type: ignore[index]
        result.probabilities.clear()  # type: ignore[union-attr]
        result.logprobs["no"] = 7.0  # type: ignore[index]
    assert len(model.computed) == 1
    results = Model().classify(["ab"] * 9, **options)
    assert len({id(result.logits) for result in results}) == 9


def test_repeats_of_a_row_that_fails_have_an_error_of_their_own() -> None:
    model = Model()
    results = model.classify(["x", "a", "x", "x"], **LABELLED)
    assert len(model.computed) == 2
    errors = [result.error for result in results if result.error]
    assert [str(error) for error in errors] == ["not a number"] * 3
    assert {type(error) for error in errors} == {InvalidModelError}
    assert len(set(map(id, errors))) == 3
    assert model.metrics.prompt_tokens == 1
    assert model.metrics.cached_prompt_tokens == 0


@pytest.mark.parametrize("error", [OutOfMemoryError("gone"), core.GenerationCancelled()])
def test_an_error_is_forgotten_with_its_block(
    monkeypatch: pytest.MonkeyPatch, error: CoreError
) -> None:
    monkeypatch.setattr(classifying, "_STREAM", (2, 2))
    model = Model(error)
    results = list(model.classify_iter(["x", "x", "x", "a"], **LABELLED))
    assert texts_of(model) == ["x", "x", "a"]
    assert [type(result.error) for result in results[:3]] == [type(error)] * 3


def test_equal_tokens_behind_which_labels_begin_elsewhere_are_two_rows() -> None:
    model = Model()
    model.classify(["ab ", "ab"], **LABELLED)
    spaced, other = model.computed
    assert spaced.key == dataclasses.replace(spaced, index=7).key
    assert spaced.key != dataclasses.replace(other, ids=spaced.ids).key


# ---------------------------------------------------------------- any rows, blocks and bounds


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A row of which the tokens are all."""

    index: int
    ids: tuple[int, ...]

    @property
    def key(self) -> tuple[bytes, object]:
        return bytes(self.ids), None


class Late:
    """Takes a block before it gives out the one in front, as where a device works ahead."""

    reused = 0

    def __init__(self) -> None:
        self.computed: Counter[tuple[int, ...]] = Counter()

    def results(self, blocks: Iterable[Sequence[Plain]]) -> Iterator[tuple[Plain, Score]]:
        before: Sequence[Plain] = ()
        for block in blocks:
            self.computed.update(row.ids for row in block)
            yield from ((row, self.score(row)) for row in before)
            before = block
        yield from ((row, self.score(row)) for row in before)

    def score(self, row: Plain) -> Score:
        return Score(float(sum(row.ids)), tuple(map(float, row.ids)))


tokens = st.tuples(st.integers(0, 3), st.integers(0, 2))
calls = st.lists(st.lists(st.lists(tokens, max_size=6), max_size=4), min_size=1, max_size=4)


@given(calls, st.sampled_from([0, 1000, 3000, 10**6]))
@settings(deadline=None)
def test_results_are_those_without_it(found: list[list[list[Any]]], most: int) -> None:
    """Of several calls of one reader, as a stream makes them, with any bound of its memory."""
    reader = Late()
    equal = EqualRows[Plain, Score](reader, most)
    index = 0
    seen: set[tuple[int, ...]] = set()
    for blocks in found:
        rows = []
        for block in blocks:
            rows.append([Plain(index + place, ids) for place, ids in enumerate(block)])
            index += len(block)
        given = {row.index: row for block in rows for row in block}
        answered = list(equal.results(rows))
        assert sorted(row.index for row, _ in answered) == sorted(given)
        for row, score in answered:
            assert row == given[row.index]
            assert score == reader.score(row)
        seen.update(row.ids for row in given.values())
    assert equal.reused == 2 * (index - sum(reader.computed.values()))  # each has two tokens
    assert set(reader.computed) == seen
    if most == 10**6:
        assert max(reader.computed.values(), default=1) == 1


@given(st.lists(st.integers(0, 9)), st.integers(0, 8))
@settings(deadline=None)
def test_what_is_remembered_is_the_latest_that_fits(keys: list[int], count: int) -> None:
    score = Score(1.0, (1.0,))
    one = Remembered[Score](10**9)
    one.put((b"0", None), score)
    remembered = Remembered[Score](one.used * count)
    latest: list[int] = []
    for key in keys:
        known = remembered.get((b"%d" % key, None))
        assert (known is not None) == (key in latest)
        if known is None:
            remembered.put((b"%d" % key, None), score)
        latest = [*(old for old in latest if old != key), key][-count:] if count else []
        assert remembered.used == one.used * len(latest)


def test_logits_count_with_their_bytes() -> None:
    small, large = Remembered[ClassifyResult](10**9), Remembered[ClassifyResult](10**9)
    small.put((b"", None), ClassifyResult(Token(1, "a")))
    large.put((b"", None), ClassifyResult(Token(1, "a"), array("f", [0.0]) * 1000))
    assert 4000 <= large.used - small.used <= 4200


def test_the_numbers_of_many_labels_count() -> None:
    probabilities = {f"label {number}": 0.01 for number in range(100)}
    remembered = Remembered[ClassifyResult](10**6)
    remembered.put((b"", None), ClassifyResult(probabilities=probabilities))
    assert remembered.used >= getsizeof(probabilities) + 100 * getsizeof(0.01)


# ---------------------------------------------------------------- score


class Scorer:
    """Scores a row by its targets, and counts."""

    reused = 0

    def __init__(self) -> None:
        self.computed = 0

    def results(self, blocks: Iterable[Sequence[ScoreRow]]) -> Iterator[tuple[ScoreRow, Score]]:
        for block in blocks:
            for row in block:
                self.computed += 1
                yield row, Score(float(sum(row.targets)), tuple(map(float, row.targets)))


@pytest.mark.parametrize(("equal", "computed", "cached"), [(True, 3, 4), (False, 5, 0)])
def test_equal_pairs_are_scored_once(equal: bool, computed: int, cached: int) -> None:
    model = Model()
    model.equal_rows = equal
    prompts, tails = ["ab", "ab", "a", "ab", "ab"], ["c", "c", "bc", "d", "c"]
    scores = model.score(prompts, tails)
    assert [score.logprob for score in scores] == [99.0, 99.0, 197.0, 100.0, 99.0]
    assert model.counting_scorer.computed == computed
    assert (model.metrics.prompt_tokens, model.metrics.cached_prompt_tokens) == (10, cached)
