"""``classify``: a shared prefix of prompts is computed once; labels are read after each prompt.

If one prompt fails, its row has the ``error``; the other rows finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from core.errors import OutOfMemoryError, RequestError
from core.kit.base import RequestClock
from core.kit.labels import LabelScores, score_labels, with_scores
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_runtime.batches import by_prefix
from core_runtime.owner import OwnerThread
from core_runtime.request import seeded
from core_runtime.rows import PromptRow, labels_alone, of_labels
from core_runtime.text.label_tokens import LabelQuestion

from .language import START, State
from .loader import Loaded
from .sampling import draw, log_softmax


class ToyClassifier:
    """One call: a `core_runtime.classifying.Classifier`."""

    def __init__(
        self, loaded: Loaded, owner: OwnerThread, config: GenerateConfig, clock: RequestClock
    ) -> None:
        self._language, self._tokenizer = loaded.language, loaded.tokenizer
        self._owner, self._config, self._clock = owner, config, clock
        self.reused = 0

    def results(
        self, blocks: Iterable[Sequence[PromptRow]]
    ) -> Iterator[tuple[PromptRow, ClassifyResult]]:
        """Yield each row's result; rows with a shared prefix come together."""
        for rows in blocks:
            most = [row.read_from for row in rows]  # nothing after these is read
            for prefix, group in by_prefix(rows, [row.ids for row in rows], most):
                yield from self._group(prefix, group)

    def _group(
        self, prefix: Sequence[int], rows: Sequence[PromptRow]
    ) -> Iterator[tuple[PromptRow, ClassifyResult]]:
        """Yield the results of rows with one prefix; engine steps run between two rows."""
        check = self._clock.check
        try:
            check()
            state = self._owner.run(partial(self._language.read, START, prefix), check)
            self.reused += len(prefix) * (len(rows) - 1)
        except RequestError:  # stopped: each row finds out for itself
            prefix, state = (), START

        for row in rows:
            try:
                check()
                job = partial(self._answer, row, state, len(prefix))
                yield row, self._owner.run(job, check)
            except RequestError as error:
                yield row, ClassifyResult(error=error.with_traceback(None))
            except MemoryError:
                words = f"No memory is left for a prompt of {len(row.ids)} tokens."
                yield row, ClassifyResult(error=OutOfMemoryError(words))

    def _answer(self, row: PromptRow, state: State, start: int) -> ClassifyResult:
        """Return a row's result, on the owner thread; ``state`` is after its ``start`` tokens."""
        config, anchor = self._config, row.anchor
        state = self._language.read(state, row.ids[start:anchor])
        scores = None if row.question is None else self._scores(row.question, state)
        if scores is not None and row.question is not None and labels_alone(config):
            return of_labels(with_scores(ClassifyResult(), scores), row.question.trie)

        logits = self._language.logits(self._language.read(state, row.ids[anchor:]))
        token = draw(logits, row.ids, seeded(config), 0)
        result = ClassifyResult(
            token=Token(
                token,
                self._tokenizer.token_text(token),
                log_softmax(logits)[token] if config.return_logprobs else None,
            ),
            logits=logits if config.return_logits else None,
        )
        return result if scores is None else with_scores(result, scores)

    def _scores(self, question: LabelQuestion, state: State) -> LabelScores:
        """Return the scores of the labels after ``state``, with one pass per node of the trie."""
        edges = []
        for path, children in zip(question.trie.prefixes, question.trie.children, strict=True):
            logprobs = log_softmax(self._language.logits(self._language.read(state, path)))
            edges.append([logprobs[token] for token in children])
        return score_labels(question.trie, edges)
