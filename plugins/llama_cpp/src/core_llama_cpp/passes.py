"""Prompts that are read and not continued, as many in one pass as the context has room for.

Each prompt is a sequence, which begins as a copy of what the prompts share; what is asked behind
a prompt's end (labels of several tokens) are copies of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from core.clock import RequestClock
from core.errors import ModelClosedError, PromptTooLongError, RequestError
from core.serving.owner import OwnerThread
from core_llama_cpp.engine import Engine
from core_llama_cpp.pool import Lease, Pool
from core_llama_cpp.prefixes import SharedPrefix
from core_llama_cpp.questions import Branch, Need, Question
from core_llama_cpp.reading import Reading
from core_llama_cpp.session import DecodeError, Session
from core_llama_cpp.spans import Runner


class Counts(NamedTuple):
    """Prompt tokens of a call, and how many of them were not computed but copied."""

    tokens: int
    cached: int


class Passes:
    """Runs questions of one model between the steps of its engine."""

    def __init__(self, session: Session, pool: Pool, engine: Engine, owner: OwnerThread) -> None:
        self._session, self._pool, self._engine, self._owner = session, pool, engine, owner
        self._runner = Runner(session)
        self._prefix = SharedPrefix(session, pool, self._runner)

    def run(
        self, prefix: Sequence[int], questions: Sequence[Question], between: Callable[[], None]
    ) -> int:
        """Answer or fail as many of the first questions as fit: how many, at least one.

        All begin with ``prefix``. ``between`` two batches may raise, and nothing is left over.
        From any thread.
        """
        return self._owner.run(lambda: self._run(prefix, questions, between))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """A call is over, and nobody needs its shared beginning. From any thread."""
        with suppress(ModelClosedError):
            self._owner.run(self._forget)

    def _forget(self) -> None:
        self._prefix.drop()
        self._engine.wake()  # requests may have waited for its cells

    def _run(
        self, prefix: Sequence[int], questions: Sequence[Question], between: Callable[[], None]
    ) -> int:
        most = self._session.settings.n_outputs_max
        needs = [Need.of(question, len(prefix)) for question in questions[:most]]
        self._engine.make_room(self._prefix.missing(prefix) + needs[0].cells, needs[0].sequences)
        too_large = self._too_large(prefix, questions[0], needs[0])
        if too_large is not None:
            questions[0].fail(too_large)
            return 1
        try:
            shared = self._prefix.use(prefix)
            count = self._fitting(needs)
            self._answer(shared, len(prefix), questions[:count], between)
        finally:
            self._engine.wake()
        return count

    def _too_large(
        self, prefix: Sequence[int], question: Question, need: Need
    ) -> PromptTooLongError | None:
        """When not even the first question fits, with nobody else there."""
        if self._pool.has(self._prefix.missing(prefix) + need.cells, need.sequences):
            return None
        self._prefix.drop()
        if self._pool.has(len(prefix) + need.cells, need.sequences):
            return None
        return PromptTooLongError(len(prefix) + need.cells, self._pool.size)

    def _fitting(self, needs: Sequence[Need]) -> int:
        """How many of the first questions run together."""
        room, cells = self._session.n_batch, self._pool.cells - max(n.behind for n in needs)
        free = self._pool.sequences
        most = free // 2 if any(need.behind for need in needs) else free  # the rest: for branches
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
        questions: Sequence[Question],
        between: Callable[[], None],
    ) -> None:
        lease = self._pool.take(sum(len(q.ids) - start for q in questions), len(questions))
        pairs = list(zip(questions, lease.sequences, strict=True))
        try:
            if shared is not None:
                for sequence in lease.sequences:
                    self._session.copy(shared, sequence)
            spans = [_head(question, start, sequence) for question, sequence in pairs]
            self._runner.run(spans, between)
            _pass_on(questions, spans)
            self._branch(pairs, between)
        finally:
            self._release(lease)

    def _branch(self, pairs: Sequence[tuple[Question, int]], between: Callable[[], None]) -> None:
        """What is asked behind the questions, as much at a time as there is room for."""
        waiting = [
            (question, sequence, branch)
            for question, sequence in pairs
            if question.error is None
            for branch in question.branches()
        ]
        while waiting:
            some: list[tuple[Question, int, Branch]] = []
            cells, outputs = self._pool.cells, self._session.settings.n_outputs_max
            for item in waiting[: self._pool.sequences]:
                cells, outputs = cells - len(item[2].ids), outputs - item[2].reads
                if some and (cells < 0 or outputs < 0):
                    break
                some.append(item)
            self._run_branches(some, between)
            waiting = waiting[len(some) :]

    def _run_branches(
        self, some: Sequence[tuple[Question, int, Branch]], between: Callable[[], None]
    ) -> None:
        lease = self._pool.take(sum(len(branch.ids) for _, _, branch in some), len(some))
        try:
            spans = []
            for (question, source, branch), target in zip(some, lease.sequences, strict=True):
                self._session.copy(source, target)
                start = len(question.ids)
                spans.append(Reading(branch.ids, start, target, branch.reads, branch.to))
            self._runner.run(spans, between)
            _pass_on([question for question, _, _ in some], spans)
        finally:
            self._release(lease)

    def _release(self, lease: Lease) -> None:
        for sequence in lease.sequences:
            self._session.drop(sequence)
        self._pool.give(lease)


def _head(question: Question, start: int, sequence: int) -> Reading:
    ids = question.ids[start:]
    return Reading(ids, start, sequence, question.reads, question.read)


def _pass_on(questions: Sequence[Question], spans: Sequence[Reading]) -> None:
    for question, span in zip(questions, spans, strict=True):
        if span.error is not None:
            question.fail(span.error)


def ask(
    passes: Passes, prefix: Sequence[int], questions: Sequence[Question], clock: RequestClock
) -> Counts:
    """Run questions that begin alike; between two batches, see whether it is time to stop.

    Those that were answered count.
    """
    done = 0
    while done < len(questions):
        try:
            clock.check()
            done += passes.run(prefix, questions[done:], clock.check)
        except DecodeError:  # the beginning alone could not be computed
            prefix = ()
        except RequestError as error:
            for question in questions[done:]:
                question.fail(error)
            break
    answered = [question for question in questions if question.error is None]
    cached = len(prefix) * max(0, len(answered) - 1)
    return Counts(sum(len(question.ids) for question in answered), cached)
