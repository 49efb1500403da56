"""The prefix cache of generation: storing finished prompts and finding earlier ones.

A prompt is cached when it ends, and again with its answer: the next turn of a conversation begins
with both, or with the prompt only if the template renders the answer differently. A prefix shared
by waiting prompts is computed once, in a separate pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from core_mlx_native.decode.kv_cache import BatchCache
from core_mlx_native.network.prefill import NO_PREFIX, Prefix
from core_mlx_native.network.prefix_store import PrefixStore
from core_runtime.batches import by_prefix
from core_runtime.prefix_cache import PrefixMatch
from core_runtime.request import Request
from core_runtime.waiting import PromptJob

SPARE = 16  # cached tokens at the end that a template may render differently
Together = Callable[[Sequence[int]], Iterable[list[int]]]
Group = tuple[Sequence[PromptJob], Sequence[Prefix]]  # jobs prefilled together, and their prefixes
Run = Callable[[Sequence[int], Prefix], Prefix]  # computes a prefix, after its cached part


@dataclass(frozen=True, slots=True)
class Shared:
    """A prefix of several prompts; ``computed`` tokens of it were not cached."""

    match: PrefixMatch[Prefix]
    computed: int
    jobs: Sequence[PromptJob]


class Recall:
    """The engine's part of a model's `PrefixStore`; on the owner thread.

    ``worth``: tokens that take as long as an almost empty pass. Caching or reusing fewer would not
    pay off.
    """

    def __init__(self, store: PrefixStore, worth: int) -> None:
        self._store, self.worth = store, worth

    def shared(self, jobs: Sequence[PromptJob], most: int, run: Run) -> Iterator[Shared]:
        """Compute shared prefixes if that saves more than a pass.

        ``most``: limit of tokens for all such passes together.
        """
        limits = [min(most, len(job.ids) - 1) for job in jobs]
        for ids, some in by_prefix(jobs, [job.ids for job in jobs], limits, self.worth):
            known = self._find(ids, len(ids))
            missing = len(ids) - (known.size if known else 0)
            if (len(some) - 1) * missing <= self.worth or missing > most:
                continue

            most -= missing
            known_prefix = known.entry.payload.cut(known.size).whole() if known else NO_PREFIX
            columns = known_prefix.known(run(ids, known_prefix).cache)
            self._store.keep(ids, columns)
            yield Shared(PrefixMatch(self._store.entry(ids, columns), len(ids)), missing, some)

    def groups(
        self, jobs: Sequence[PromptJob], together: Together, shared: Sequence[Shared] = ()
    ) -> Iterator[Group]:
        """Divide prompts into groups to prefill together, by their remaining tokens.

        ``together`` cuts numbers of tokens into batches of indices; ``shared`` is found for its
        prompts like cached prefixes. Rows with a prefix run as many tokens after it as the longest
        row of their group: a shorter row recomputes tokens instead of padding.
        """
        new = {id(job): one.match for one in shared for job in one.jobs}
        # The last token is always computed: it gives the logits.
        cached = [self._find(job.ids, len(job.ids) - 1) for job in jobs]
        prefixes = [_longer(new.get(id(job)), one) for job, one in zip(jobs, cached, strict=True)]
        sizes = [one.size if one else 0 for one in prefixes]
        rest = [len(job.ids) - size for job, size in zip(jobs, sizes, strict=True)]

        for rows in together(rest):
            longest = max(rest[row] for row in rows)
            group = []
            for row in rows:
                prefix = _cut(prefixes[row], len(jobs[row].ids) - longest)
                if prefix is None:  # the prefix cannot be cut that short: it runs by itself
                    yield [jobs[row]], [_cut(prefixes[row], sizes[row]) or NO_PREFIX]
                else:
                    group.append((jobs[row], prefix))
            if group:
                yield [job for job, _ in group], [prefix for _, prefix in group]

    def keep_prompt(self, job: PromptJob, cache: BatchCache, row: int) -> None:
        """Cache a prompt from a row, unless most of it is cached already."""
        if len(job.ids) - job.requests[0].cached >= self.worth:
            self._keep(job.ids, cache, row)

    def keep_answers(self, ended: Iterable[tuple[int, Request]], cache: BatchCache | None) -> None:
        """Cache the prompts and answers of ended requests, from their rows."""
        for row, request in ended:
            if cache is not None and request.drawn >= self.worth:
                self._keep([*request.ids, *request.tokens], cache, row)

    def _find(self, ids: Sequence[int], most: int) -> PrefixMatch[Prefix] | None:
        match = self._store.longest(ids, most)
        return match if match and match.size >= self.worth else None

    def _keep(self, ids: Sequence[int], cache: BatchCache, row: int) -> None:
        """Cache these tokens from a row.

        A row with more tokens than these is not cached: a sliding context dropped some, or some
        were drawn for a request that another thread had ended meanwhile.
        """
        size = cache.length(row)
        if self._store.on and size <= len(ids):
            self._store.keep(ids[:size], cache.columns_of(row))


def _cut(match: PrefixMatch[Prefix] | None, size: int) -> Prefix | None:
    """Return the found prefix cut to so many tokens; None if it cannot be cut to them."""
    if match is None or size <= 0:
        return NO_PREFIX
    return match.entry.payload.cut(size) if size >= match.entry.least else None


def _longer(
    one: PrefixMatch[Prefix] | None, other: PrefixMatch[Prefix] | None
) -> PrefixMatch[Prefix] | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda match: match.size)
