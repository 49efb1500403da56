"""``mlx_lm.batch_generate(max_tokens=1)``: at its defaults, and as fast as its options allow.

The sampler picks the likeliest of the labels' first tokens, so that the one token it makes is the
answer; that costs less than the default, which looks at the whole vocabulary. Uses the BLAS that
infercore-mlx-native preloads: the one that MLX brings would be many times slower.
"""

from __future__ import annotations

import copy
import importlib
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from benchmarks.classify_parts.runner import WARM_UP, Answer, Ids, Spec, label_ids, spread
from benchmarks.classify_parts.workloads import LABELS

_PREFILL_BATCHES = (4, 8, 16, 32, 64)
_TRIAL = 64  # prompts that each candidate is tried on: one batch of the largest


class MlxLm:
    """Option ``mode``: "default"; "best", sorted and with the fastest prefill batch; or "prefix",

    which is "best" with the shared beginning run once and handed in as ``prompt_caches``.
    """

    def __init__(self, spec: Spec) -> None:
        from core_mlx_native.cpu.blas import ensure_blas

        self._blas = ensure_blas().name  # before mlx
        mx: Any = importlib.import_module("mlx.core")
        mx.set_default_device(mx.cpu)
        self._mx = mx
        self._caches: Any = importlib.import_module("mlx_lm.models.cache")
        self._generate: Any = importlib.import_module("mlx_lm.generate")
        self._model, self._tokenizer = importlib.import_module("mlx_lm").load(spec.model)
        self._mode = spec.options["mode"]
        self._batch: int | None = None

    def about(self) -> str:
        """Version, BLAS, and the batch that was found best."""
        batch = f", prefill_batch_size {self._batch}" if self._batch else ""
        return f"mlx-lm {version('mlx-lm')}, {self._blas}{batch}"

    def warm_up(self, prompts: Sequence[str]) -> None:
        """A few prompts; where the batch is to be chosen, each candidate on a sample."""
        self.run(spread(prompts, WARM_UP))
        if self._mode == "default":
            return
        sample = spread(prompts, _TRIAL)
        useful = [size for size in _PREFILL_BATCHES if size <= len(sample)]
        self._batch = min(useful, key=lambda size: self._seconds(sample, size), default=None)

    def _seconds(self, sample: Sequence[str], batch: int) -> float:
        self._batch = batch
        started = time.perf_counter()
        self.run(sample)
        return time.perf_counter() - started

    def run(self, prompts: Sequence[str]) -> Answer:
        """Make one call of batch_generate."""
        ids = label_ids(self._tokenizer.encode, prompts[0])
        encoded = [self._tokenizer.encode(prompt) for prompt in prompts]
        shared = _shared(encoded) if self._mode == "prefix" else 0
        order = list(range(len(prompts)))
        if self._mode != "default":
            order.sort(key=lambda row: len(encoded[row]))
        batch = self._generate.batch_generate(
            self._model,
            self._tokenizer,
            [encoded[row][shared:] for row in order],
            max_tokens=1,
            return_token_ids=True,
            sampler=self._sampler(ids),
            **self._options(encoded, shared),
        )
        labels = {row: LABELS[ids.index(batch.token_ids[n][0])] for n, row in enumerate(order)}
        tokens = sum(map(len, encoded))
        computed = tokens - shared * (len(encoded) - 1)
        return Answer([labels[row] for row in range(len(prompts))], tokens, computed)

    def _sampler(self, ids: Ids) -> Any:
        columns = self._mx.array(ids)
        return lambda logprobs: columns[self._mx.argmax(logprobs[:, columns], axis=-1)]

    def _options(self, encoded: Sequence[Ids], shared: int) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if self._batch:
            chosen["prefill_batch_size"] = self._batch
            chosen["completion_batch_size"] = max(32, self._batch)
        if shared:
            cache = self._caches.make_prompt_cache(self._model)
            self._model(self._mx.array([encoded[0][:shared]]), cache=cache)
            self._mx.eval([layer.state for layer in cache])
            chosen["prompt_caches"] = [copy.deepcopy(cache) for _ in encoded]
        return chosen


def _shared(encoded: Sequence[Ids]) -> int:
    """Return the length of the shared prefix, without the last token of each."""
    low, high = min(encoded), max(encoded)
    limit = min(map(len, encoded)) - 1
    same = (n for n, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1])
    return min(next(same, limit), limit)
