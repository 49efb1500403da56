"""Items run on a model: generated texts, or the likelihood of each choice; batch by batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from core.errors import (
    CoreError,
    EvaluationError,
    InvalidOptionError,
    LabelError,
    OptionError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.extensions import Scoring
from core.kit.labels import softmax
from core.kit.support import compares_sentences, unsupported
from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core.types import ClassifyResult, Score
from core_tasks.agreement.measures import share
from core_tasks.asking import logarithms
from core_tasks.evaluation.drawing import Drawn, Generate, drawn
from core_tasks.evaluation.items import Item
from core_tasks.evaluation.marking import Marking, majority
from core_tasks.evaluation.prompts import Prompting, rendering, told_by
from core_tasks.evaluation.result import ItemResult, Sample

T = TypeVar("T")
ALL = 0
"""A batch size: all items in one call, which the backend splits as it needs."""

_MANY = 8  # items with the same choices, from which a separate call pays


@dataclass(slots=True)
class Speed:
    """Cost of one batch size: items, generated tokens, and seconds.

    ``cached_tokens`` of the prompts' tokens were not computed.
    """

    items: int = 0
    tokens: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def to_dict(self) -> dict[str, float | None]:
        """Return the rates for JSON; None if nothing was measured."""
        return {
            "seconds": self.seconds,
            "items_per_second": share(self.items, self.seconds),
            "generated_tokens_per_second": share(self.tokens, self.seconds),
        }


class Asker:
    """Runner of items, each at every batch size, that marks the answers.

    The first batch size gives the results, the others are compared with it. Each item gets
    ``samples`` texts (`core_tasks.evaluation.drawing`). ``generate`` replaces the model's own
    ``batch_generate``.
    """

    def __init__(
        self,
        model: TextModel,
        prompting: Prompting,
        marking: Marking,
        *,
        batch_sizes: Sequence[int] = (ALL,),
        samples: int = 1,
        generate: Generate | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        prompting.check()
        self.model, self.prompting, self.marking = model, prompting, marking
        self.speeds = {size: Speed() for size in batch_sizes}
        self._samples, self._clock, self._warm = samples, clock, False
        self._speed = Speed()
        self._told = {told_by(example) for example in prompting.examples}
        self._sentences = compares_sentences(model)
        if prompting.letters and self._sentences:
            raise EvaluationError(
                "This model compares a text with label sentences, in which a letter says nothing. "
                "Score the texts of the choices, without letters."
            )
        self._generate = generate or model.batch_generate
        labels = marking.metric == "choice"
        self._render = rendering(prompting, model, labels=labels) if prompting.chat else None

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that are passed to the chat template; complete after the first prompt."""
        return {} if self._render is None else self._render.variables

    def prompt(self, item: Item) -> str:
        """Return the prompt of an item. Raises `CoreError` if it has none."""
        return self.prompting.put(item, self._render)

    def answered(self, items: Sequence[Item], config: GenerateConfig) -> list[ItemResult]:
        """Return the marked items, in order."""
        prompts: list[str | CoreError] = [self._prompt_or_error(item) for item in items]
        usable = [n for n, prompt in enumerate(prompts) if isinstance(prompt, str)]
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        ask = self._chosen if self.marking.metric == "choice" else self._written

        if len(self.speeds) > 1 and not self._warm:
            ask([items[n] for n in usable[:1]], texts[:1], config)  # the first pass is slower
            self._warm = True
        rounds = [
            list(self._in_batches(size, [items[n] for n in usable], texts, config, ask))
            for size in self.speeds
        ]
        marked = iter(zip(*rounds, strict=True))
        return [
            self._failed(item, prompt) if isinstance(prompt, CoreError) else self._one(next(marked))
            for item, prompt in zip(items, prompts, strict=True)
        ]

    def _prompt_or_error(self, item: Item) -> str | CoreError:
        if self.marking.metric == "choice" and not item.choices:
            return EvaluationError("The item has no choices.")
        if self.marking.metric != "choice" and not self.marking.gold(item):
            return EvaluationError(f"The answer {item.answers[0]!r:.80} has no number.")
        try:
            return self.prompt(item)
        except OptionError:  # as wrong for every other item
            raise
        except CoreError as error:
            return error

    def _in_batches(
        self,
        size: int,
        items: Sequence[Item],
        prompts: Sequence[str],
        config: GenerateConfig,
        ask: Callable[[Sequence[Item], Sequence[str], GenerateConfig], Sequence[ItemResult]],
    ) -> Iterator[ItemResult]:
        speed = self._speed = self.speeds[size]
        for start in range(0, len(items), size or max(len(items), 1)):
            end = start + (size or len(items))
            before = self._clock()
            results = ask(items[start:end], prompts[start:end], config)
            speed.seconds += self._clock() - before
            speed.items += len(results)
            speed.tokens += sum(sample.tokens for result in results for sample in result.samples)
            yield from results

    def _note_cost(self) -> None:
        """Count the prompts' tokens of the call that has ended."""
        spent = self.model.metrics
        self._speed.prompt_tokens += spent.prompt_tokens
        self._speed.cached_tokens += spent.cached_prompt_tokens

    def _one(self, rounds: Sequence[ItemResult]) -> ItemResult:
        """Return the first size's result, compared with the other sizes' results."""
        first, *others = rounds
        if not others:
            return first
        again = {
            size: (bool(result.right), _answer(result) == _answer(first))
            for size, result in zip([*self.speeds][1:], others, strict=True)
        }
        failed = next((result.error for result in rounds if result.error is not None), None)
        if failed is not None:
            return replace(first, right=None, error=failed)
        return replace(first, again=again)

    def _failed(self, item: Item, error: Exception) -> ItemResult:
        return ItemResult(item.answers[0], error=error, among_examples=self._given_away(item))

    def _given_away(self, item: Item) -> bool:
        return told_by(item) in self._told

    # ----------------------------------------------------------------------- texts

    def _written(
        self, items: Sequence[Item], prompts: Sequence[str], config: GenerateConfig
    ) -> list[ItemResult]:
        outputs = drawn(self.model, prompts, config, self._samples, self._generate)
        self._note_cost()
        return [self._marked(item, texts) for item, texts in zip(items, outputs, strict=True)]

    def _marked(self, item: Item, results: Sequence[Drawn]) -> ItemResult:
        gold = self.marking.gold(item)
        failed = next((draw.error for draw in results if draw.error is not None), None)
        if failed is not None:
            return ItemResult(gold[0], error=failed, among_examples=self._given_away(item))

        samples = tuple(self._sample(result, gold) for result in results)
        voted = majority([sample.said for sample in samples])
        several = len(samples) > 1
        return ItemResult(
            gold=gold[0],
            prediction=samples[0].said,
            right=samples[0].right,
            sureness=samples[0].sureness,
            samples=samples,
            majority=voted if several else None,
            majority_right=voted in gold if several else None,
            among_examples=self._given_away(item),
        )

    def _sample(self, result: Drawn, gold: Sequence[str]) -> Sample:
        extracted, logprobs = self.marking.said(result.text), result.logprobs
        return Sample(
            output=result.text,
            said=extracted,
            right=extracted in gold,
            finish_reason=result.finish_reason,
            tokens=result.tokens,
            sureness=math.exp(math.fsum(logprobs) / len(logprobs)) if logprobs else None,
        )

    # ----------------------------------------------------------------------- choices

    def _chosen(
        self, items: Sequence[Item], prompts: Sequence[str], config: GenerateConfig
    ) -> list[ItemResult]:
        """Return the likeliest choices.

        Items with the same choices are classified, which is faster and gives the same numbers: a
        label's log-probability is its score (`labels.scores` in the suite). With label sentences
        every item is classified, and no choice has a log-probability.
        """
        limits = GenerateConfig(cancel=config.cancel, timeout=config.timeout)
        together: dict[tuple[str, ...], list[int]] = {}
        for place, item in enumerate(items):
            together.setdefault(self.prompting.names(item), []).append(place)

        results: dict[int, ItemResult] = {}
        for names, places in together.items():
            texts = [prompts[place] for place in places]
            for place, result in zip(places, self._classified(names, texts, limits), strict=False):
                results[place] = self._of_classified(items[place], names, result)

        others = [place for place in range(len(items)) if place not in results]
        scored = self._scored([(items[place], prompts[place]) for place in others], limits)
        results.update(zip(others, scored, strict=True))
        return [results[place] for place in range(len(items))]

    def _classified(
        self, names: tuple[str, ...], prompts: Sequence[str], limits: GenerateConfig
    ) -> list[ClassifyResult]:
        """Return the results for these labels; none for few items or unsupported labels."""
        if len(prompts) < _MANY and not self._sentences:
            return []
        request = replace(
            limits,
            labels=names,
            label_prefix=self.prompting.prefix,
            label_sentence=self.prompting.label_sentence,
        )
        try:
            results = self.model.classify(prompts, request)
        except (LabelError, UnsupportedOperationError, UnsupportedOptionError):
            if self._sentences:
                raise
            return []
        self._note_cost()
        return results

    def _of_classified(
        self, item: Item, names: Sequence[str], result: ClassifyResult
    ) -> ItemResult:
        if result.error is not None:
            return self._failed(item, result.error)
        if not self._sentences:
            return self._of(item, [(result.logprobs or {}).get(name, -math.inf) for name in names])
        scores = logarithms(result.probabilities or {})
        of_sentences = self._of(item, [scores[name] for name in names])
        return replace(of_sentences, logprobs={}, right_normalised=None)

    def _scored(
        self, pending: Sequence[tuple[Item, str]], limits: GenerateConfig
    ) -> list[ItemResult]:
        """Return the likeliest choices of items with individual choices."""
        if not pending:
            return []
        endings = [self.prompting.endings(item, prompt) for item, prompt in pending]
        repeated = [p for (_, p), ends in zip(pending, endings, strict=True) for _ in ends]
        flat = [end for ends in endings for end in ends]
        scores = iter(scoring(self.model).score(repeated, flat, limits))
        self._note_cost()
        return [self._likeliest(item, _take(scores, len(item.choices))) for item, _ in pending]

    def _likeliest(self, item: Item, scores: Sequence[Score]) -> ItemResult:
        failed = next((score.error for score in scores if score.error is not None), None)
        if failed is not None:
            return self._failed(item, failed)
        return self._of(item, [score.logprob for score in scores])

    def _of(self, item: Item, sums: Sequence[float]) -> ItemResult:
        """Return the result of the choices' log-probabilities."""
        gold, shares, best = item.answers[0], softmax(sums), _best(sums)
        # By characters of the choice, without the text before it: lm-evaluation-harness 0.4.13,
        # `ConfigurableTask.process_results`.
        by_length = [total / len(text) for total, text in zip(sums, item.choices, strict=True)]
        return ItemResult(
            gold=gold,
            prediction=item.choices[best],
            right=best == item.gold,
            sureness=shares[best],
            probabilities=dict(zip(item.choices, shares, strict=True)),
            logprobs=dict(zip(item.choices, sums, strict=True)),
            right_normalised=_best(by_length) == item.gold,
            among_examples=self._given_away(item),
        )


def scoring(model: TextModel) -> Scoring:
    """Return the model as `Scoring`. Raises `UnsupportedOperationError` if it cannot score."""
    if isinstance(model, Scoring):
        return model
    raise unsupported(Capability.SCORING, type(model).__name__)


def checked_samples(
    samples: int, sizes: Sequence[int], config: GenerateConfig, pass_at: Sequence[int] = ()
) -> None:
    """Raise `InvalidOptionError` for samples that would all be the same, be drawn twice, or be
    fewer than ``pass_at`` asks for."""
    if pass_at and not 1 <= min(pass_at) <= max(pass_at) <= samples:
        raise InvalidOptionError("pass_at", [*pass_at], f"numbers from 1 to {samples}, the samples")
    if samples > 1 and config.temperature == 0:
        raise InvalidOptionError(
            "num_samples", samples, "1 with temperature=0, because all samples would be the same"
        )
    if samples > 1 and len(sizes) > 1:
        raise InvalidOptionError("num_samples", samples, "1 with several batch sizes")


def _answer(result: ItemResult) -> object:
    return result.samples[0].output if result.samples else result.prediction


def _best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _take(source: Iterator[T], count: int) -> list[T]:
    return [next(source) for _ in range(count)]
