"""transformers on torch: padded batches of prompts of like length, one forward pass each.

Only the last position goes through the head (``logits_to_keep=1``), as its users are advised.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from benchmarks.classify_parts.runner import (
    WARM_UP,
    Answer,
    Ids,
    Spec,
    by_length,
    label_ids,
    spread,
)
from benchmarks.classify_parts.workloads import LABELS
from benchmarks.line_process import UnavailableError


class Transformers:
    """Options: ``batch`` rows, ``device``, ``dtype``, ``threads``."""

    def __init__(self, spec: Spec) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._library: Any = importlib.import_module("transformers")
        self._options = {"batch": 32, "device": "cpu", "dtype": "float32", **spec.options}
        self._device = self._options["device"]
        if self._on_gpu and not self._torch.cuda.is_available():
            raise UnavailableError("torch sees no CUDA device")
        if threads := spec.options.get("threads"):
            self._torch.set_num_threads(threads)
        self._tokenizer = self._library.AutoTokenizer.from_pretrained(spec.model)
        self._model = self._load(spec.model)

    @property
    def _on_gpu(self) -> bool:
        return bool(self._device != "cpu")

    def _load(self, path: str) -> Any:
        loaded = self._library.AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(self._torch, self._options["dtype"])
        )
        return loaded.to(self._device).eval()

    def about(self) -> str:
        """Versions and settings."""
        torch, library = self._torch.__version__, self._library.__version__
        batch, dtype = self._options["batch"], self._options["dtype"]
        return f"transformers {library}, torch {torch}, batches of {batch}, {dtype}"

    def warm_up(self, prompts: Sequence[str]) -> None:
        """A few prompts; on a GPU, all."""
        self.run(prompts if self._on_gpu else spread(prompts, WARM_UP))

    def run(self, prompts: Sequence[str]) -> Answer:
        """Batch after batch."""
        if self._on_gpu:
            self._torch.cuda.reset_peak_memory_stats()
        ids = label_ids(self._encode, prompts[0])
        encoded: list[Ids] = self._tokenizer(list(prompts)).input_ids
        labels = [""] * len(prompts)
        for rows in by_length(encoded, self._options["batch"]):
            for row, best in zip(
                rows, self._best([encoded[row] for row in rows], ids), strict=True
            ):
                labels[row] = LABELS[best]
        peak = self._torch.cuda.max_memory_allocated() if self._on_gpu else None
        tokens = sum(map(len, encoded))
        return Answer(labels, tokens, tokens, device_bytes=peak)

    def _encode(self, text: str) -> Ids:
        ids: Ids = self._tokenizer(text).input_ids
        return ids

    def _best(self, encoded: Sequence[Ids], ids: Ids) -> list[int]:
        """The position in ``ids`` of each row's likeliest; left-padded, so that rows end alike."""
        size = max(map(len, encoded))
        padding = [size - len(row) for row in encoded]
        padded = [[0] * n + list(row) for n, row in zip(padding, encoded, strict=True)]
        seen = [[0] * n + [1] * (size - n) for n in padding]
        mask = self._torch.tensor(seen, device=self._device)
        with self._torch.inference_mode():
            logits = self._model(
                input_ids=self._torch.tensor(padded, device=self._device),
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
                use_cache=False,
                logits_to_keep=1,
            ).logits[:, -1]
        best: list[int] = logits[:, ids].float().argmax(dim=-1).tolist()
        return best
