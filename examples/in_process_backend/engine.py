"""The engine: requests wait for a slot, are prefilled in chunks, and decode concurrently.

Everything here runs on the model's owner thread, one step after another; classify and close run
between two steps.
"""

from __future__ import annotations

from collections import deque

from core.errors import OutOfMemoryError
from core_runtime.engine import Engine
from core_runtime.owner import OwnerThread
from core_runtime.request import Request, own_error
from core_runtime.waiting import PromptJob

from .language import START, Language, State
from .loader import Loaded
from .sampling import draw, log_softmax

CHUNK = 16  # tokens of a prompt at once: a long one does not hold up the rows that decode


class Prefill:
    """The prefill of a job's prompt; ``state`` is the network's after the tokens read so far."""

    def __init__(self, job: PromptJob) -> None:
        self.job, self.state, self._done = job, START, 0
        for request in job.requests:
            request.begin()

    def step(self, language: Language) -> bool:
        """Read the next chunk; return True if it was the last."""
        chunk = self.job.ids[self._done : self._done + CHUNK]
        self.state = language.read(self.state, chunk)
        self._done += len(chunk)
        return self._done == len(self.job.ids)


class Row:
    """A decoding request, and the state after all of its tokens."""

    def __init__(self, request: Request, state: State) -> None:
        self.request, self._state = request, state
        self._seen = set(request.ids)

    def step(self, language: Language) -> None:
        """Draw a token and send it, then read it."""
        request, logits = self.request, language.logits(self._state)
        token = draw(logits, self._seen, request.config, request.drawn)
        wanted = request.config.return_logprobs
        request.take(token, log_softmax(logits)[token] if wanted else None)
        self._seen.add(token)
        self._state = language.read(self._state, [token])


class ToyEngine(Engine):
    """Serves all generation of one model."""

    def __init__(self, loaded: Loaded, owner: OwnerThread) -> None:
        super().__init__(owner)
        self._language, self._slots = loaded.language, loaded.slots
        self._prefills: deque[Prefill] = deque()
        self._rows: list[Row] = []

    @property
    def idle(self) -> bool:
        """Whether no request is in here."""
        return not (self._waiting or self._prefills or self._rows)

    def _step(self) -> bool:
        """Admit, prefill one chunk, decode one token a row. False: there was nothing to do."""
        if self.idle:
            return False

        self._drop_unwanted()
        self._admit()
        with self.watch.on("prefill"):
            self._prefill()
        with self.watch.on("decode"):
            self._decode()
        return True

    def _let_go(self) -> list[Request]:
        requests = [row.request for row in self._rows]
        requests += [request for prefill in self._prefills for request in prefill.job.requests]
        self._rows, self._prefills = [], deque()
        return requests

    def _failure(self, error: BaseException, request: Request) -> Exception:
        if isinstance(error, MemoryError):
            return OutOfMemoryError(f"No memory is left for a prompt of {len(request.ids)} tokens.")
        return own_error(error)

    def _drop_unwanted(self) -> None:
        """End what was cancelled or timed out: in the line, in prefill, while it decodes."""
        self._waiting.sweep()
        self._prefills = deque(each for each in self._prefills if each.job.wanted())
        for row in self._rows:
            row.request.look()
        self._rows = [row for row in self._rows if not row.request.ended]

    def _admit(self) -> None:
        """Fill the slots that are free, from the front of the line."""
        taken = len(self._rows) + sum(len(prefill.job.requests) for prefill in self._prefills)
        jobs = self._waiting.take(self._slots - taken, anyhow=not taken)
        self._prefills.extend(map(Prefill, jobs))

    def _prefill(self) -> None:
        """One chunk of the prompt whose turn it is. At its end, all its requests decode from it."""
        if not self._prefills:
            return
        prefill = self._prefills[0]  # stays queued, so that callers get any error
        try:
            last = prefill.step(self._language)
        except Exception as error:  # noqa: BLE001 - of this prompt, not of its neighbours
            for request in prefill.job.requests:
                request.fail(self._failure(error, request))
            last = True

        if not last:
            self._prefills.rotate(-1)  # a long prompt does not hold up a short one
        else:
            self._prefills.popleft()
            for request in prefill.job.requests:
                request.look()  # after the last chunk, before its first token
            self._rows += [Row(r, prefill.state) for r in prefill.job.requests if not r.ended]

    def _decode(self) -> None:
        for row in self._rows:
            try:
                row.step(self._language)
            except Exception as error:  # noqa: BLE001 - of this row, not of its neighbours
                row.request.fail(self._failure(error, row.request))
        self._rows = [row for row in self._rows if not row.request.ended]
