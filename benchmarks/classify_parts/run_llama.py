"""A loop over ``llama_cpp.Llama``, which keeps the tokens that a prompt shares with the last one.

A logits processor leaves only the labels' first tokens, so that the one token made is the answer;
asking for ``logprobs`` instead would need ``logits_all=True``, which is far slower.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from benchmarks.classify_parts.runner import WARM_UP, Answer, Ids, Spec, label_ids, spread
from benchmarks.classify_parts.workloads import LABELS

_CONTEXT = 1024  # tokens; the longest prompt has about 400


class LlamaLoop:
    """One GGUF file, one prompt after another. Option ``threads``."""

    def __init__(self, spec: Spec) -> None:
        self._library: Any = importlib.import_module("llama_cpp")
        self._numpy: Any = importlib.import_module("numpy")
        threads = spec.options.get("threads") or os.cpu_count()
        self._model = self._library.Llama(
            spec.model,
            n_ctx=_CONTEXT,
            n_threads=threads,
            n_threads_batch=threads,
            n_gpu_layers=0,
            verbose=False,
        )
        self._cached: Ids = []

    def about(self) -> str:
        """Version."""
        return f"llama-cpp-python {self._library.__version__}"

    def warm_up(self, prompts: Sequence[str]) -> None:
        """A few prompts."""
        self.run(spread(prompts, WARM_UP))

    def run(self, prompts: Sequence[str]) -> Answer:
        """Complete one prompt after another, with one token each."""
        ids = label_ids(self._encode, prompts[0])
        columns = dict(zip(ids, LABELS, strict=True))
        only = self._library.LogitsProcessorList([self._only(ids)])
        labels, tokens, computed = [], 0, 0
        for prompt in prompts:
            encoded = self._encode(prompt)
            tokens += len(encoded)
            computed += len(encoded) - self._kept(encoded)
            chosen = next(self._model.generate(encoded, temp=0.0, logits_processor=only))
            labels.append(columns[chosen])
        return Answer(labels, tokens, computed)

    def _encode(self, text: str) -> Ids:
        ids: Ids = self._model.tokenize(text.encode(), add_bos=True, special=False)
        return ids

    def _kept(self, encoded: Ids) -> int:
        """Return the number of tokens that llama_cpp.Llama.generate finds in its cache."""
        pairs = zip(self._cached, encoded, strict=False)
        same = next((n for n, (old, new) in enumerate(pairs) if old != new), len(self._cached))
        self._cached = encoded
        return min(same, len(encoded) - 1)

    def _only(self, ids: Ids) -> Any:
        def keep(_: Any, scores: Any) -> Any:
            masked = self._numpy.full_like(scores, -self._numpy.inf)
            masked[ids] = scores[ids]
            return masked

        return keep
