"""Prompts that are read but not continued, as many in one pass as fit in the context.

A question about a prompt takes a part of the context. A prefix that prompts share, also with those
of earlier calls, is computed once and copied to every sequence.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import NamedTuple, Protocol, Self

from core.errors import ModelClosedError, PromptTooLongError, RequestError
from core.kit.base import RequestClock
from core_runtime.log import log_batch
from core_runtime.owner import OwnerThread
from core_runtime.sequences.engine import EngineModel, SequenceEngine
from core_runtime.sequences.pool import Lease, Pool
from core_runtime.sequences.prefixes import SharedPrefix
from core_runtime.sequences.session import DecodeError, Logits
from core_runtime.sequences.spans import Read, SpanReading, SpanRunner


class Branch(NamedTuple):
    """Tokens that follow those of a question; the logits of the last ``reads`` go to ``to``.

    ``hidden``: their hidden states after these layers do; then all tokens of the branch are read,
    and all branches of a call have the same layers.
    """

    ids: tuple[int, ...]
    reads: int
    to: Read
    hidden: tuple[int, ...] = ()


class LogitsQuestion(Protocol):
    """A question about a prompt, which reads the logits after some of the prompt's tokens."""

    error: Exception | None

    @property
    def ids(self) -> Sequence[int]:
        """The tokens of the prompt."""
        ...

    @property
    def reads(self) -> int:
        """The number of last tokens whose logits are read."""
        ...

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits after a token, for the last ``reads`` of ``ids`` in order."""
        ...

    @property
    def longest(self) -> int:
        """The number of tokens of the longest branch."""
        ...

    def branches(self, most: int) -> Sequence[Branch]:
        """Return the branches to run next after the tokens; called again once they were read.

        Empty at the end. About ``most`` suffice if the next branches depend on these.
        """
        ...

    def fail(self, error: Exception) -> None:
        """Take the error of a prompt that could not be computed."""
        ...


@dataclass(frozen=True, slots=True)
class Need:
    """The room that a question takes: its own ``tokens``, and those of its longest ``branch``."""

    tokens: int
    branch: int

    @classmethod
    def of(cls, question: LogitsQuestion, shared: int) -> Need:
        """Return the need of a question after a prefix of ``shared`` tokens."""
        return cls(len(question.ids) - shared, question.longest)

    @property
    def cells(self) -> int:
        """The cells for the question itself and one branch at a time."""
        return self.tokens + self.branch

    @property
    def sequences(self) -> int:
        """The sequences for the question, a branch, and the shared prefix."""
        return 3


class PassResult(NamedTuple):
    """The result of a pass: the first ``done`` questions are answered or failed.

    Each copied ``shared`` tokens of a prefix, of which ``computed`` were computed in this pass.
    """

    done: int
    shared: int = 0
    computed: int = 0


class TokenCounts(NamedTuple):
    """Prompt tokens of a call, and the number of them that were copied, not computed."""

    tokens: int
    cached: int


class Passes:
    """A runner of questions about one model, between the steps of its engine.

    ``logger``: gets a record of each batch.
    """

    def __init__(
        self,
        model: EngineModel,
        pool: Pool,
        engine: SequenceEngine,
        owner: OwnerThread,
        logger: logging.Logger,
    ) -> None:
        self._session, self._prefixes = model.session, model.prefixes
        self._pool, self._engine, self._owner, self.logger = pool, engine, owner, logger
        self._runner = SpanRunner(self._session)
        self._prefix = SharedPrefix(self._session, pool, self._runner, self._prefixes)

    def run(
        self, prefix: Sequence[int] | None, questions: Sequence[LogitsQuestion], clock: RequestClock
    ) -> PassResult:
        """Answer or fail as many of the first questions as fit; at least one.

        All begin with ``prefix``; None looks for one in the prefix cache. If ``clock`` raises, here
        or between two batches, the running pass is interrupted and leaves nothing in the context.
        From any thread.
        """
        try:
            return self._owner.run(lambda: self._run(prefix, questions, clock.check), clock.check)
        except Exception:
            self._session.interrupt()
            raise
        except BaseException:  # the call was interrupted
            clock.stop()
            self._session.interrupt()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Drop the shared prefix at the end of a call. From any thread."""
        with suppress(ModelClosedError):
            self._owner.post(self._forget)

    def _forget(self) -> None:
        self._prefix.drop()
        self._engine.wake()  # requests may wait for its cells

    def _known(
        self, questions: Sequence[LogitsQuestion]
    ) -> tuple[Sequence[int], Sequence[LogitsQuestion]]:
        """Return a prefix of the first prompt that is cached or shared with a recent prompt.

        Also returns the first questions that begin with it.
        """
        ids, most = questions[0].ids, _most(questions[0])
        known = ids[: self._prefixes.beginning(ids, most)]
        return known, list(takewhile(partial(_begins, known), questions)) if known else questions

    def _run(
        self,
        prefix: Sequence[int] | None,
        questions: Sequence[LogitsQuestion],
        between: Callable[[], None],
    ) -> PassResult:
        if prefix is None:
            prefix, questions = self._known(questions)
        most = self._session.n_outputs_max
        needs = [Need.of(question, len(prefix)) for question in questions[:most]]
        self._engine.make_room(self._prefix.missing(prefix) + needs[0].cells, needs[0].sequences)

        too_large = self._too_large(prefix, questions[0], needs[0])
        if too_large is not None:
            questions[0].fail(too_large)
            return PassResult(1)

        try:
            shared = self._prefix.use(prefix, between)
            count = self._fitting(needs)
            self._answer(shared, len(prefix), questions[:count], between)
        finally:
            self._engine.wake()
        return PassResult(count, len(prefix), self._prefix.computed)

    def _too_large(
        self, prefix: Sequence[int], question: LogitsQuestion, need: Need
    ) -> PromptTooLongError | None:
        """Return the error of a first question that does not fit even alone, else None."""
        if self._pool.has(self._prefix.missing(prefix) + need.cells, need.sequences):
            return None
        self._prefix.drop()
        if self._pool.has(len(prefix) + need.cells, need.sequences):
            return None
        return PromptTooLongError(len(prefix) + need.cells, self._pool.size)

    def _fitting(self, needs: Sequence[Need]) -> int:
        """Return the number of first questions that run together."""
        room, cells = self._session.n_batch, self._pool.cells - max(n.branch for n in needs)
        free = self._pool.sequences
        most = free // 2 if any(need.branch for need in needs) else free  # the rest: for branches
        count = 0
        for need in needs[: max(1, most)]:
            room, cells = room - need.tokens, cells - need.tokens
            if count and (room < 0 or cells < 0):
                break
            count += 1
        return count

    def _answer(
        self,
        shared: int | None,
        start: int,
        questions: Sequence[LogitsQuestion],
        between: Callable[[], None],
    ) -> None:
        lease = self._pool.take(sum(len(q.ids) - start for q in questions), len(questions))
        pairs = list(zip(questions, lease.sequences, strict=True))

        try:
            if shared is not None:
                for sequence in lease.sequences:
                    self._session.copy(shared, sequence)

            # Each prompt runs in a separate sequence, after a copy of the shared prefix.
            spans = [
                SpanReading(question.ids[start:], start, sequence, question.reads, question.read)
                for question, sequence in pairs
            ]
            self._runner.run(spans, between)
            _pass_on(questions, spans)
            self._branch(pairs, between)
        finally:
            self._release(lease)

    def _branch(
        self, pairs: Sequence[tuple[LogitsQuestion, int]], between: Callable[[], None]
    ) -> None:
        """Run the branches of the questions until none is left."""
        while pairs:
            # A round of searching questions should fill a pass through the layers.
            most = max(1, self._session.n_ubatch // len(pairs))
            rounds = [(*pair, pair[0].branches(most)) for pair in pairs if pair[0].error is None]
            self._run_round([(q, at, node) for q, at, some in rounds for node in some], between)
            pairs = [(question, at) for question, at, branches in rounds if branches]

    def _run_round(
        self, waiting: Sequence[tuple[LogitsQuestion, int, Branch]], between: Callable[[], None]
    ) -> None:
        """Run branches, as many at a time as cells, rows of logits and sequences allow."""
        while waiting:
            some: list[tuple[LogitsQuestion, int, Branch]] = []
            cells, outputs = self._pool.cells, self._session.n_outputs_max
            for item in waiting[: self._pool.sequences]:
                cells, outputs = cells - len(item[2].ids), outputs - item[2].reads
                if some and (cells < 0 or outputs < 0):
                    break
                some.append(item)
            self._run_branches(some, between)
            waiting = waiting[len(some) :]

    def _run_branches(
        self, some: Sequence[tuple[LogitsQuestion, int, Branch]], between: Callable[[], None]
    ) -> None:
        lease = self._pool.take(sum(len(branch.ids) for _, _, branch in some), len(some))
        try:
            spans = []
            for (question, source, branch), target in zip(some, lease.sequences, strict=True):
                self._session.copy(source, target)
                start = len(question.ids)
                spans.append(SpanReading(branch.ids, start, target, branch.reads, branch.to))
            self._runner.run(spans, between, hidden=some[0][2].hidden)
            _pass_on([question for question, _, _ in some], spans)
        finally:
            self._release(lease)

    def _release(self, lease: Lease) -> None:
        for sequence in lease.sequences:
            self._session.drop(sequence)
        self._pool.give(lease)


def _begins(prefix: Sequence[int], question: LogitsQuestion) -> bool:
    """Return True for a question whose prompt has this prefix, followed by the tokens to read."""
    return len(prefix) <= _most(question) and question.ids[: len(prefix)] == prefix


def _most(question: LogitsQuestion) -> int:
    """Return the number of prompt tokens that may be copied: the read ones must be computed."""
    return len(question.ids) - question.reads


def _pass_on(questions: Sequence[LogitsQuestion], spans: Sequence[SpanReading]) -> None:
    for question, span in zip(questions, spans, strict=True):
        if span.error is not None:
            question.fail(span.error)


def ask(
    passes: Passes, prefix: Sequence[int], questions: Sequence[LogitsQuestion], clock: RequestClock
) -> TokenCounts:
    """Run questions with a shared prefix; between two batches, poll the clock.

    The counts include answered questions only.
    """
    beginning = prefix or None
    done = cached = 0
    while done < len(questions):
        try:
            clock.check()
            since = time.monotonic()
            ran = passes.run(beginning, questions[done:], clock)
        except DecodeError:  # the prefix could not be computed
            beginning = ()
        except RequestError as error:
            for question in questions[done:]:
                question.fail(error)
            break
        else:
            some = questions[done : done + ran.done]
            log_batch(passes.logger, ran.done, partial(_computed, some, ran), since)
            answered = _answered(some)
            cached += max(0, len(answered) * ran.shared - ran.computed)
            done += ran.done

    return TokenCounts(sum(len(question.ids) for question in _answered(questions)), cached)


def _computed(questions: Sequence[LogitsQuestion], ran: PassResult) -> int:
    """Return the prompt tokens that a pass computed, without the tokens of labels."""
    return ran.computed + sum(len(question.ids) - ran.shared for question in questions)


def _answered(questions: Sequence[LogitsQuestion]) -> list[LogitsQuestion]:
    return [question for question in questions if question.error is None]
