"""CTranslate2: one decoding step per prompt, after the beginning that all prompts share.

Its converter makes the model on the first run; the result is cached. Rows of a batch have equal
lengths: of longer ones than the shortest, it masks all logits except those of the drawn token.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.classify_parts.runner import WARM_UP, Answer, Ids, Spec, label_ids, spread
from benchmarks.classify_parts.workloads import LABELS

_BATCH = 16  # rows


class CTranslate2:
    """Options: ``quantisation``, by CTranslate2's name, and ``threads``."""

    def __init__(self, spec: Spec) -> None:
        self._library: Any = importlib.import_module("ctranslate2")
        tokenizers: Any = importlib.import_module("tokenizers")
        self._quantisation = spec.options["quantisation"]
        converted = _converted(spec.model, self._quantisation)
        self._model = self._library.Generator(
            str(converted), intra_threads=spec.options["threads"], inter_threads=1
        )
        self._tokenizer = tokenizers.Tokenizer.from_file(f"{spec.model}/tokenizer.json")

    def about(self) -> str:
        """Versions and settings."""
        return f"ctranslate2 {self._library.__version__}, {self._model.compute_type}"

    def warm_up(self, prompts: Sequence[str]) -> None:
        """A few prompts."""
        self.run(spread(prompts, WARM_UP))

    def run(self, prompts: Sequence[str]) -> Answer:
        """Make one call, whose rows are batched by the library."""
        numpy: Any = importlib.import_module("numpy")
        ids = label_ids(self._encode, prompts[0])
        encoded = [self._encode(prompt) for prompt in prompts]
        shared = _shared(encoded)
        labels = [""] * len(prompts)
        for rows in _equally_long(encoded):
            results = self._model.generate_batch(
                [self._tokens(encoded[row][len(shared) :]) for row in rows],
                static_prompt=self._tokens(shared) or None,
                max_batch_size=_BATCH,
                max_length=1,
                include_prompt_in_result=False,
                return_logits_vocab=True,
            )
            for row, result in zip(rows, results, strict=True):
                labels[row] = LABELS[int(numpy.array(result.logits[0])[0][ids].argmax())]
        tokens = sum(map(len, encoded))
        return Answer(labels, tokens, tokens - len(shared) * len(labels))

    def _encode(self, text: str) -> Ids:
        ids: Ids = self._tokenizer.encode(text).ids
        return ids

    def _tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._tokenizer.id_to_token(token) for token in ids]


def _shared(encoded: Sequence[Ids]) -> Ids:
    """Return the tokens with which all rows begin, each row's last one excluded."""
    first, last = min(encoded), max(encoded)
    size = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    )
    return first[: min(size, min(map(len, encoded)) - 1)]


def _equally_long(encoded: Sequence[Ids]) -> list[list[int]]:
    """Return the numbers of rows by length."""
    rows_of: dict[int, list[int]] = {}
    for row, ids in enumerate(encoded):
        rows_of.setdefault(len(ids), []).append(row)
    return list(rows_of.values())


def _converted(model: str, quantisation: str) -> Path:
    """Return the directory with the converted model."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "core"
    target = cache / "ctranslate2" / f"{Path(model).name}-{quantisation}"
    if not (target / "model.bin").is_file():
        converters: Any = importlib.import_module("ctranslate2.converters")
        converter = converters.TransformersConverter(model)
        converter.convert(str(target), quantization=quantisation, force=True)
    return target
