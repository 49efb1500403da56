"""``classify`` and its like: micro-batches of like length, results in the order of the prompts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from core.errors import RequestError
from core.kit.base import RequestClock
from core.kit.labels import (
    LabelTrie,
    build_trie,
    label_paths,
    label_texts,
    score_labels,
    with_scores,
)
from core.options import GenerateConfig
from core.types import ClassifyResult, HiddenResult, Score, Token
from core_conformance.reference.engine import Engine, GivenIds, check_ids, check_text
from core_conformance.reference.language import log_softmax
from core_conformance.reference.meter import Meter
from core_conformance.reference.sampling import generator, sample
from core_conformance.reference.vocabulary import decode, encode_continued

MICRO_BATCH = 8


class Classifier:
    """One call of ``classify`` on many prompts."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        self._engine, self.config, self._meter = engine, config, meter
        self._clock = RequestClock(config)

    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        """Return one result per prompt, in order; raise `LabelError` for indistinguishable labels.

        When the call is cancelled while it waits for a slot, every prompt gets that error.
        """
        try:
            with self._engine.slots.taken(self._check), self._meter.prefilling():
                return self._results(prompts)
        except RequestError as error:
            return [ClassifyResult(error=error)] * len(prompts)

    def _check(self) -> None:
        self._engine.check_open()
        self._clock.check()

    def _results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = [ClassifyResult()] * len(prompts)
        for batch in self.micro_batches(prompts):
            rows = [prompts[index] for index in batch]
            for index, result in zip(batch, self.read(rows), strict=True):
                results[index] = result
        return results

    def micro_batches(self, prompts: Sequence[str]) -> Iterator[list[int]]:
        """Yield the numbers of the prompts of each micro-batch, those of like length together."""
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        for start in range(0, len(order), MICRO_BATCH):
            yield order[start : start + MICRO_BATCH]

    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        """Run one micro-batch; what is wrong with one prompt is the error of its own result."""
        results = [ClassifyResult()] * len(prompts)
        rows: dict[int, list[int]] = {}
        for index, prompt in enumerate(prompts):
            try:
                self._clock.check()
                rows[index] = self._engine.prompt_ids(prompt)
            except RequestError as error:
                results[index] = ClassifyResult(error=error)

        self._meter.prompt_tokens += sum(map(len, rows.values()))
        self._meter.generated_tokens += len(rows)
        for index, logits in zip(rows, self._engine.forward(list(rows.values())), strict=True):
            try:
                results[index] = self.result(prompts[index], rows[index], logits)
            except RequestError as error:  # no room for a label
                results[index] = ClassifyResult(error=error)
        return results

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        """Return the result for one prompt, from the logits after it."""
        config = self.config
        token = sample(logits, ids, config, generator(config))
        logprob = log_softmax(logits)[token] if config.return_logprobs else None

        result = ClassifyResult(
            token=Token(token, decode([token]), logprob),
            logits=logits if config.return_logits else None,
        )
        if not config.labels:
            return result

        # Labels begin at the anchor; each inner node of their trie is queried for its children.
        anchor, trie = self._labels(prompt, ids)
        self.check_labels(anchor + max(map(len, trie.prefixes)))
        logprobs = [
            [row[token] for token in children]
            for row, children in zip(self._ask(ids[:anchor], trie), trie.children, strict=True)
        ]
        scored = with_scores(result, score_labels(trie, logprobs))
        return _of_labels(scored, trie) if self._labels_alone else scored

    @property
    def _labels_alone(self) -> bool:
        """True where ``labels_only`` counts: nothing else was requested."""
        config = self.config
        return config.labels_only and not (config.return_logits or config.return_logprobs)

    def check_labels(self, length: int) -> None:
        """Raise `PromptTooLongError` for a label that is read beyond the context."""
        self._engine.check_length(length)

    def _labels(self, prompt: str, ids: list[int]) -> tuple[int, LabelTrie]:
        texts = label_texts(prompt, self.config.labels, self.config.label_prefix)
        continued = [encode_continued(prompt, text) for text in texts]
        anchor, paths = label_paths(ids, continued, list)  # all begin with BOS: none stands alone
        return anchor, build_trie(self.config.labels, paths)

    def _ask(self, ids: list[int], trie: LabelTrie) -> list[list[float]]:
        """Return the log-probabilities after each inner node of the trie."""
        return [
            log_softmax(logits)
            for logits in self._engine.forward([[*ids, *prefix] for prefix in trie.prefixes])
        ]


def _of_labels(result: ClassifyResult, trie: LabelTrie) -> ClassifyResult:
    """Return the label; and the probabilities where each label is one token."""
    if len(trie.prefixes) > 1:
        return ClassifyResult(label=result.label)
    return ClassifyResult(
        label=result.label, probabilities=result.probabilities, margin=result.margin
    )


def score(engine: Engine, clock: RequestClock, prompt: str, continuation: str) -> Score:
    """Score one pair; what is wrong with the pair is the score's error."""
    try:
        clock.check()
        start, ids = _tokens(engine, prompt, continuation)
    except RequestError as error:
        return Score(error=error)
    return _scored(engine, start, ids)


def score_ids(
    engine: Engine, clock: RequestClock, prompt: Sequence[int], continuation: Sequence[int]
) -> Score:
    """Return the same of token ids."""
    try:
        clock.check()
        head = engine.prompt_ids(GivenIds(prompt))
        ids = [*head, *check_ids(continuation, "continuation")]
        engine.check_length(len(ids) - 1)
    except RequestError as error:
        return Score(error=error)
    return _scored(engine, len(head), ids)


def _scored(engine: Engine, start: int, ids: Sequence[int]) -> Score:
    """Return the score of the ids from ``start`` on."""
    logprobs = []
    greedy = True
    for position, logits in enumerate(
        engine.forward([ids[:end] for end in range(start, len(ids))])
    ):
        token = ids[start + position]
        logprobs.append(log_softmax(logits)[token])
        greedy = greedy and logits[token] == max(logits)

    return Score(sum(logprobs), tuple(logprobs), greedy)


def hidden(engine: Engine, clock: RequestClock, prompt: str, layers: Sequence[int]) -> HiddenResult:
    """Return the hidden states after one prompt; what is wrong with it is the result's error."""
    try:
        clock.check()
        ids = engine.prompt_ids(prompt)
    except RequestError as error:
        return HiddenResult(error=error)

    states = array("f")
    for layer in layers:
        states.extend(engine.language.state(ids, layer))
    return HiddenResult(tuple(layers), states)


def _tokens(engine: Engine, prompt: str, continuation: str) -> tuple[int, list[int]]:
    """Return the place at which the continuation begins, and the ids of prompt and continuation."""
    head = engine.prompt_ids(prompt)
    check_text(continuation, "continuation")
    continued = encode_continued(prompt, continuation)
    start, [path] = label_paths(head, [continued], list)  # both begin with BOS
    ids = [*head[:start], *path]
    engine.check_length(len(ids) - 1)  # the last token is scored and never read
    return start, ids
