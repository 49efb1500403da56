"""onnxruntime on the same weights, from a graph of our own: in float32, or its dynamic int8."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.encoder_parts.subject import Rows, Spec

_BATCH = 32  # rows of like length
_SCALE = 20.0  # of the cosine


class Onnx:
    """Options: ``weights``, float32 or int8, and ``threads``."""

    def __init__(self, spec: Spec) -> None:
        self._np: Any = importlib.import_module("numpy")
        self._runtime: Any = importlib.import_module("onnxruntime")
        tokenizers: Any = importlib.import_module("tokenizers")
        self._weights = spec.options["weights"]
        folder = Path(spec.model)
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        bounds = json.loads((folder / "sentence_bert_config.json").read_bytes())
        self._most = bounds["max_seq_length"]
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = spec.options["threads"]
        file = _graph(folder, self._weights, self._runtime.__version__)
        providers = ["CPUExecutionProvider"]
        self._session = self._runtime.InferenceSession(str(file), options, providers=providers)

    def about(self) -> str:
        """Return version and weights."""
        return f"onnxruntime {self._runtime.__version__}, {self._weights}"

    def label(self, texts: Sequence[str], labels: Sequence[str], question: str) -> Rows:
        """Return the log-softmax of scaled cosines; the labels are embedded once."""
        sentences = self._vectors([question.format(label=label) for label in labels])
        scores = _SCALE * (self._vectors(texts) @ sentences.T)
        rows: Rows = (scores - self._np.logaddexp.reduce(scores, axis=1, keepdims=True)).tolist()
        return rows

    def embed(self, texts: Sequence[str]) -> Rows:
        """Return the vectors as lists."""
        vectors: Rows = self._vectors(texts).tolist()
        return vectors

    def _vectors(self, texts: Sequence[str]) -> Any:
        np = self._np
        ids = [encoding.ids[: self._most] for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        pooled: dict[int, Any] = {}
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            longest = max(len(ids[row]) for row in part)
            tokens = np.zeros((len(part), longest), np.int64)
            mask = np.zeros((len(part), longest), np.float32)
            for place, row in enumerate(part):
                tokens[place, : len(ids[row])], mask[place, : len(ids[row])] = ids[row], 1
            [sums] = self._session.run(None, {"ids": tokens, "mask": mask})
            pooled |= dict(zip(part, sums, strict=True))
        sums = np.stack([pooled[row] for row in range(len(ids))])
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def _graph(model: Path, weights: str, version: str) -> Path:
    """Return the file of a graph, made on the first run and cached."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "core" / "onnx"
    cache.mkdir(parents=True, exist_ok=True)
    full = cache / f"{model.name}-float32.onnx"
    if not full.is_file():
        onnx_graph: Any = importlib.import_module("benchmarks.encoder_parts.onnx_graph")
        onnx_graph.write(model, full)
    if weights == "float32":
        return full
    quantised = cache / f"{model.name}-int8-{version}.onnx"
    if not quantised.is_file():
        quantisation: Any = importlib.import_module("onnxruntime.quantization")
        kind = quantisation.QuantType.QInt8
        quantisation.quantize_dynamic(
            str(full), str(quantised), weight_type=kind, op_types_to_quantize=["MatMul"]
        )
    return quantised
