"""The models of a search: one for any calls, and a baseline to compare it with.

The baseline is loaded for the purpose and asked each question alone and once: a greedy or seeded
answer does not depend on earlier or concurrent calls, so that its answers are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from core.errors import CoreError, LabelError, RequestError
from core.extensions import ClassifyStreaming, Scoring
from core.protocols import Capability, TextModel
from core.types import BatchResult, ClassifyResult, Score, Token
from core_conformance.checking.ask import Answer, begin
from core_conformance.checking.check import must, well_formed
from core_conformance.checking.compare import Pair, difference
from core_conformance.checking.recall import same_results
from core_conformance.checking.script import record
from core_conformance.checking.script.spelling import keywords, spelled
from core_conformance.checking.subject import Subject

T = TypeVar("T")
Options = dict[str, Any]
Outcome = tuple[Answer, CoreError | None]
"""An answer, and the error with which it stopped."""

_KEPT = 500  # answers
_CONTINUING = (Capability.GENERATE, Capability.SUBMITTING, Capability.BATCH_GENERATE)


class World:
    """``model`` is the one under test; ``yardstick`` is asked by the methods named after it."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.model = subject.load()
        self._yardstick = subject.load()
        self._answers: dict[str, tuple[Any, record.Call | None]] = {}
        self._seen: list[Pair] = []
        self.tokens = 0  # of all answers that were compared

    def renew(self) -> None:
        """Load both models again, and forget all answers."""
        self.close()
        self.model, self._yardstick = self.subject.load(), self.subject.load()
        self._answers.clear()

    def close(self) -> None:
        """Close both models."""
        for model in (self.model, self._yardstick):
            with suppress(Exception):  # whether it does what it should is for the checks to say
                model.close()

    def answered(self, operation: Capability, prompt: str, options: Options) -> Outcome:
        """Return the yardstick's answer to a prompt, or the error that it ends with.

        By ``chat`` for chat; for all else by the first operation that continues a prompt.
        """
        among = (Capability.CHAT,) if operation is Capability.CHAT else _CONTINUING
        way = next(name for name in among if self.subject.declares(name))
        key = f"{way} {spelled(prompt)}{keywords(options)}"
        if way is Capability.BATCH_GENERATE:
            (row,) = self._once(key, lambda model: batch(model, [prompt], options))
            error = cast("CoreError | None", row.error)
            return Answer(row.tokens, row.finish_reason, prompt), error
        return self._once(key, lambda model: said(way, model, prompt, options))

    def classified(self, prompt: str, options: Options) -> ClassifyResult:
        """Return the yardstick's result for a prompt.

        Labels that it refuses are the result's error.
        """
        key = f"classify {spelled(prompt)}{keywords(options)}"
        if self.subject.declares(Capability.CLASSIFY):
            return self._once(key, lambda model: classify(model, [prompt], options)[0])
        return self._once(key, lambda model: _iterated(model, prompt, options))

    def scored(self, prompt: str, continuation: str) -> Score:
        """Return the yardstick's score."""
        key = f"score {spelled(prompt)} {spelled(continuation)}"
        return self._once(key, lambda model: score(model, [prompt], [continuation])[0])

    def agree(self, pairs: Sequence[Pair], what: str, drawn: bool = False) -> None:
        """Raise `Violation` unless answers are the same, as far as `difference` asks for it.

        Where a margin cannot be read, all that was compared in this search says what noise is.
        """
        self.tokens += sum(len(wanted.ids) for wanted, _ in pairs)
        deviation = difference(self.subject, pairs, drawn=drawn)
        if deviation is not None and not deviation.clear:
            deviation = difference(self.subject, [*self._seen, *pairs], drawn=drawn)
        if deviation is None:
            self._seen += [] if len(self._seen) > _KEPT else pairs
        must(deviation is None, f"{what}: {deviation.text if deviation else ''}")

    def same_answer(self, wanted: Answer, answer: Answer, what: str, drawn: bool) -> None:
        """Raise `Violation` unless tokens agree and, if they do, text and finish_reason too."""
        self.agree([(wanted, answer)], what, drawn)
        if wanted.ids == answer.ids:
            must(
                (wanted.text, wanted.finish_reason) == (answer.text, answer.finish_reason),
                f"{what} gave {answer.text!r} ({answer.finish_reason}), not {wanted.text!r} "
                f"({wanted.finish_reason})",
            )

    def same_rows(
        self, rows: Sequence[str], results: Sequence[ClassifyResult], options: Options, how: str
    ) -> None:
        """Check that each result of ``classify``, or its streaming form, is the row's own alone."""
        well_formed(len(results) == len(rows), f"{len(rows)} prompts gave {len(results)} results")
        for place, (prompt, result) in enumerate(zip(rows, results, strict=True)):
            what = f"{how} row {place} of {len(rows)}"
            wanted = self.classified(prompt, options)
            if same_error(wanted.error, result.error, f"{what}: {prompt!r:.80}"):
                same_results(self.subject, [prompt], [wanted], [result], what)

    def _once(self, key: str, ask: Callable[[TextModel], T]) -> T:
        if len(self._answers) > _KEPT:
            self._answers.clear()
        if key in self._answers:
            answer, call = self._answers[key]
            record.again(call)
        else:
            answer = ask(self._yardstick)
            self._answers[key] = answer, record.last()
        return cast("T", answer)


def said(operation: Capability, model: TextModel, prompt: str, options: Options) -> Outcome:
    """Return a model's answer to a prompt, and the error with which it stops."""
    tokens: list[Token] = []
    continued = "" if operation is Capability.CHAT else prompt
    try:
        stream = begin(operation, model, prompt, options)
        tokens.extend(stream)
    except RequestError as error:
        return Answer(tuple(tokens), "error", continued), error
    return Answer(tuple(tokens), stream.finish_reason, continued), None


def same_error(wanted: Exception | None, error: Exception | None, what: str) -> bool:
    """See that both answers are errors of one kind, or none; True if none."""
    must(type(wanted) is type(error), f"{what}: expected {wanted!r}, got {error!r}")
    return wanted is None


def classify(model: TextModel, prompts: Sequence[str], options: Options) -> list[ClassifyResult]:
    """Return one result for each prompt; refused labels are every result's error."""
    try:
        results = model.classify(prompts, **options)
    except LabelError as error:
        return [ClassifyResult(error=error)] * len(prompts)
    _one_each("classify", prompts, results)
    return results


def _iterated(model: TextModel, prompt: str, options: Options) -> ClassifyResult:
    """Return the result of a backend that classifies in streams alone."""
    results = list(cast("ClassifyStreaming", model).classify_iter([prompt], **options))
    _one_each("classify_iter", [prompt], results)
    return results[0]


def batch(model: TextModel, prompts: Sequence[str], options: Options) -> list[BatchResult]:
    """Return one result for each prompt."""
    results = model.batch_generate(prompts, **options)
    _one_each("batch_generate", prompts, results)
    return results


def score(model: TextModel, prompts: Sequence[str], continuations: Sequence[str]) -> list[Score]:
    """Return one score for each pair."""
    results = cast("Scoring", model).score(prompts, continuations)
    _one_each("score", prompts, results)
    return results


def _one_each(call: str, prompts: Sequence[str], results: Sequence[object]) -> None:
    well_formed(
        isinstance(results, list) and len(results) == len(prompts),
        f"{call}() of {len(prompts)} prompts gave {results!r:.200}, "
        "not a list with one result each",
    )
