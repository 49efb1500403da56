"""What generations leave for the prompts to come, and what they find of earlier ones.

A prompt is kept at its end, and once more with its answer: the next turn of a conversation begins
with both, and where the template renders the answer otherwise, with the prompt alone. What prompts
that wait side by side begin with alike is computed once, in a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from core_mlx_native.decode.kv_cache import BatchCache
from core_mlx_native.network.prefill import NO_PREFIX, Prefix
from core_mlx_native.network.prefix_store import PrefixStore
from core_runtime.batches import by_prefix
from core_runtime.prefix_cache import Found
from core_runtime.request import Request
from core_runtime.waiting import Job

SPARE = 16  # tokens at the end of what is kept that a template may render otherwise
Together = Callable[[Sequence[int]], Iterable[list[int]]]
Group = tuple[Sequence[Job], Sequence[Prefix]]  # what is prefilled together, and behind what
Run = Callable[[Sequence[int], Prefix], Prefix]  # computes a beginning, behind what is known of it


@dataclass(frozen=True, slots=True)
class Shared:
    """A beginning of several prompts; ``computed`` tokens of it were not known before."""

    found: Found[Prefix]
    computed: int
    jobs: Sequence[Job]


class Recall:
    """The engine's part of a model's `PrefixStore`; on the owner thread.

    ``worth``: the tokens that take as long as a pass that has hardly any. To keep fewer, or to run
    behind fewer, would not pay.
    """

    def __init__(self, store: PrefixStore, worth: int) -> None:
        self._store, self.worth = store, worth

    def shared(self, jobs: Sequence[Job], most: int, run: Run) -> Iterator[Shared]:
        """Have what prompts begin with alike computed, where that spares more than a pass.

        ``most``: tokens of all such passes together.
        """
        limits = [min(most, len(job.ids) - 1) for job in jobs]
        for ids, some in by_prefix(jobs, [job.ids for job in jobs], limits, self.worth):
            known = self._find(ids, len(ids))
            missing = len(ids) - (known.size if known else 0)
            if (len(some) - 1) * missing <= self.worth or missing > most:
                continue

            most -= missing
            behind = known.entry.payload.cut(known.size).whole() if known else NO_PREFIX
            columns = behind.known(run(ids, behind).cache)
            self._store.keep(ids, columns)
            yield Shared(Found(self._store.entry(ids, columns), len(ids)), missing, some)

    def groups(
        self, jobs: Sequence[Job], together: Together, shared: Sequence[Shared] = ()
    ) -> Iterator[Group]:
        """Divide prompts into those that are prefilled together, by what is left of them to do.

        ``together`` cuts numbers of tokens into batches of indices; ``shared`` is found for its
        prompts as what is kept.
        Rows with a prefix run as many tokens behind it as the longest row of their group: what a
        shorter one would have as padding, it computes again.
        """
        new = {id(job): one.found for one in shared for job in one.jobs}
        kept = [self._find(job.ids, len(job.ids) - 1) for job in jobs]  # the last gives the logits
        found = [_longer(new.get(id(job)), one) for job, one in zip(jobs, kept, strict=True)]
        sizes = [one.size if one else 0 for one in found]
        rest = [len(job.ids) - size for job, size in zip(jobs, sizes, strict=True)]

        for rows in together(rest):
            longest = max(rest[row] for row in rows)
            group = []
            for row in rows:
                prefix = _cut(found[row], len(jobs[row].ids) - longest)
                if prefix is None:  # what was found does not serve for so few: it runs by itself
                    yield [jobs[row]], [_cut(found[row], sizes[row]) or NO_PREFIX]
                else:
                    group.append((jobs[row], prefix))
            if group:
                yield [job for job, _ in group], [prefix for _, prefix in group]

    def keep_prompt(self, job: Job, cache: BatchCache, row: int) -> None:
        """Keep a prompt that stands in a row of the cache, unless most of it is kept already."""
        if len(job.ids) - job.requests[0].cached >= self.worth:
            self._keep(job.ids, cache, row)

    def keep_answers(self, ended: Iterable[tuple[int, Request]], cache: BatchCache | None) -> None:
        """Keep the prompts and answers of requests that have ended, by their rows in the cache."""
        for row, request in ended:
            if cache is not None and request.drawn >= self.worth:
                self._keep([*request.ids, *request.tokens], cache, row)

    def _find(self, ids: Sequence[int], most: int) -> Found[Prefix] | None:
        found = self._store.longest(ids, most)
        return found if found and found.size >= self.worth else None

    def _keep(self, ids: Sequence[int], cache: BatchCache, row: int) -> None:
        """Keep what the cache holds of these tokens.

        It may hold more: what a context that rotates has dropped, or what was drawn for a request
        that another thread had ended meanwhile.
        """
        size = cache.length(row)
        if self._store.on and size <= len(ids):
            self._store.keep(ids[:size], cache.columns_of(row))


def _cut(found: Found[Prefix] | None, size: int) -> Prefix | None:
    """So many tokens of what was found; None where it does not serve for so few, if for any."""
    if found is None or size <= 0:
        return NO_PREFIX
    return found.entry.payload.cut(size) if size >= found.entry.least else None


def _longer(one: Found[Prefix] | None, other: Found[Prefix] | None) -> Found[Prefix] | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda found: found.size)
