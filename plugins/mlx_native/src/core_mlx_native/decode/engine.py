"""The decode engine: requests wait, are prefilled, and decode concurrently in a few slots.

Everything except `submit` runs on the model's owner thread, one step at a time; other work
of that thread (classify, close) runs between steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import mlx.core as mx

from core_mlx_native.decode.batch import DecodeBatch, SamplingRows
from core_mlx_native.decode.kv_cache import CacheShape
from core_mlx_native.decode.prefilling import Prefilling, UnwantedError, look_at
from core_mlx_native.decode.recall import SPARE, Recall, Shared
from core_mlx_native.failures import is_out_of_memory, not_finite, of_request
from core_mlx_native.loaded import LoadedModel
from core_mlx_native.network.prefill import Prefix, run_prefix
from core_mlx_native.to_python import bools
from core_runtime.batches import micro_batches
from core_runtime.engine import Engine
from core_runtime.owner import OwnerThread
from core_runtime.request import Request
from core_runtime.waiting import PromptJob


class MlxEngine(Engine):
    """The engine for all generation of one model."""

    def __init__(self, model: LoadedModel, owner: OwnerThread) -> None:
        super().__init__(owner)
        self._model = model
        self._shape = _cache_shape(model)
        self._recall = Recall(model.prefixes, model.pass_tokens)
        self._batch = DecodeBatch(model.decoder, model.overlap)
        self._prefills: deque[Prefilling] = deque()
        self._admitted: list[PromptJob] = []  # taken from the queue, and not yet in a prefill

    @property
    def idle(self) -> bool:
        """True if the engine has no requests."""
        return not (self._waiting or self._prefills or self._batch.live)

    def _step(self) -> bool:
        """Admit, prefill one chunk, decode one token per row; return False if nothing was done."""
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
        jobs = [*self._admitted, *(job for group in self._prefills for job in group.jobs)]
        requests = [*self._batch.requests, *(r for job in jobs for r in job.requests)]
        self._admitted = []
        self._prefills.clear()
        self._batch.clear()
        return requests

    def _failure(self, error: BaseException, request: Request) -> Exception:
        return of_request(error, len(request.ids))

    def _drop_unwanted(self) -> None:
        self._waiting.sweep()
        for request in self._batch.requests:
            request.look()

        for group in list(self._prefills):
            wanted = [row for row, job in enumerate(group.jobs) if job.wanted()]
            if not wanted:
                self._prefills.remove(group)
            elif len(wanted) < group.rows:
                group.keep(wanted)

    def _admit(self) -> None:
        taken = self._batch.live + sum(len(j.requests) for g in self._prefills for j in g.jobs)
        jobs = self._waiting.take(self._model.slots - taken, anyhow=not taken)
        self._admitted = jobs

        # Prompts of similar remaining length are prefilled together.
        shared = self._shared(jobs)
        self._prefills += self._prefillings(jobs, shared)
        self._admitted = []

        # A shared prefix counts as computed for one of its prompts, which runs after all of it.
        for prefix in shared:
            one = max(prefix.jobs, key=lambda job: job.requests[0].cached)
            for request in one.requests:
                request.cached = max(0, request.cached - prefix.computed)

    def _shared(self, jobs: Sequence[PromptJob]) -> list[Shared]:
        """Compute the shared prefixes of waiting prompts, up to one chunk of tokens.

        A failure recurs when the prompts run separately, and is reported there.
        """
        model = self._model
        if len(jobs) < 2 or not (model.prefixes.on and model.fast.prefix):
            return []

        def run(ids: Sequence[int], known: Prefix) -> Prefix:
            return run_prefix(model.decoder, ids, model.fast, partial(look_at, jobs), known)

        with self.watch.on("prefill"), suppress(Exception):
            return list(self._recall.shared(jobs, model.prefill_chunk, run))
        return []

    def _together(self, lengths: Sequence[int]) -> Iterable[list[int]]:
        """Return batches of prompts of similar length, by index, to prefill together."""
        cuts, budget = self._model.cuts, self._model.token_budget
        if cuts is None:
            return micro_batches(lengths, budget)
        return cuts.micro_batches(lengths, lambda most: budget // most)

    def _prefillings(
        self, jobs: Sequence[PromptJob], shared: Sequence[Shared] = ()
    ) -> list[Prefilling]:
        groups = self._recall.groups(jobs, self._together, shared)
        return [self._prefilling(some, prefixes) for some, prefixes in groups]

    def _prefilling(self, jobs: Sequence[PromptJob], prefixes: Sequence[Prefix]) -> Prefilling:
        return Prefilling(self._model.decoder, self._shape, jobs, prefixes)

    def _prefill(self) -> None:
        """Run one chunk of the next group, so that long prompts do not delay short ones."""
        if not self._prefills:
            return

        group = self._prefills[0]  # it stays queued meanwhile, so its callers always get an answer

        try:
            group.step(self._model.prefill_chunk)
        except UnwantedError:
            self._prefills.popleft()
            return
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._give_up(group, error)
            return

        # An unfinished group goes to the end of the queue; a finished one starts to decode.
        if group.logits is None:
            self._prefills.rotate(-1)
        else:
            self._join(group, group.logits)
            self._prefills.popleft()

    def _give_up(self, group: Prefilling, error: Exception) -> None:
        """Retry the prompts of a failed group one by one; fail a single one.

        If out of memory, first retry them together without the prefix cache.
        """
        jobs, again = group.jobs, []
        if is_out_of_memory(error) and self._model.prefixes.clear():
            again = self._prefillings(jobs)
        elif group.rows > 1:
            again = [one for job in jobs for one in self._prefillings([job])]

        self._prefills.popleft()
        if again:
            self._prefills.extendleft(reversed(again))
            return
        for request in jobs[0].requests:
            request.fail(self._failure(error, request))

    def _join(self, group: Prefilling, logits: mx.array) -> None:
        """Start to decode prefilled prompts, with a row for each of their requests."""
        # Every continuing request gets a row with its prompt's keys and values.
        model = self._model
        broken = bools(model.decoder.ops.broken(logits))
        rows: list[int] = []
        requests = []
        for row, job in enumerate(group.jobs):
            if not broken[row]:
                self._recall.keep_prompt(job, group.cache, row)
            for request in job.requests:
                request.look()  # after the last chunk, before any output
                if broken[row]:
                    request.fail(not_finite())
                elif not request.ended:
                    rows.append(row)
                    requests.append(request)

        # The first tokens are drawn from the logits at the prompts' ends.
        if rows:
            group.cache.keep(rows)
            new = SamplingRows.of(
                requests, model.config.vocab_size, model.decoder.ops.samples_by_mass
            )
            drawn = new.draw(logits[mx.array(rows)], mx.zeros(len(rows), mx.bool_))
            self._batch.add(group.cache, new, drawn)

    def _decode(self) -> None:
        going = [(row, r) for row, r in enumerate(self._batch.requests) if not r.ended]
        try:
            self._batch.step()
            self._recall.keep_answers([pair for pair in going if pair[1].ended], self._batch.cache)
        except Exception as error:  # noqa: BLE001 - the callers get it
            if is_out_of_memory(error):
                self._model.prefixes.clear()
            for request in self._batch.requests:
                request.fail(self._failure(error, request))
            self._batch.clear()

        if self._waiting or self._prefills:
            return  # a new row may replace an ended one
        if self._batch.live:
            self._batch.compact()
        else:
            self._batch.clear()  # an idle model keeps only its weights


def _cache_shape(model: LoadedModel) -> CacheShape:
    """Return the shape of a key-value cache for this model."""
    return CacheShape(
        tuple(kind.window for kind in model.config.layers),
        model.config.num_kv_heads,
        model.config.head_dim,
        model.decoder.dtype,
        model.info.context_length if model.rotates else 0,
        anchored=model.decoder.ops.reads_whole_buffers(model.config.head_dim),
        spare=SPARE if model.prefixes.on else 0,
    )
