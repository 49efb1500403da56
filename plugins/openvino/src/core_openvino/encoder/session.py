"""One compiled encoder: rows of tokens become embeddings, or the logits of pairs.

Shapes: B rows, L tokens of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from core_openvino.angles import Angles
from core_openvino.encoder import graph
from core_openvino.encoder.config import MPNET_BUCKETS, Distances, EncoderConfig
from core_openvino.encoder.pipeline import Pipeline
from core_openvino.encoder.tokenizer import Encoded
from core_openvino.nodes import cosines_name, sines_name
from core_openvino.settings import properties
from core_runtime.batches import rounded_up
from core_runtime.processor import cpu_flags

Floats = npt.NDArray[np.float32]
FAR = -1e9
"""What is added to scores of padding; softmax gives it no share."""
_SHORT = 128
"""The longest rows whose inputs are cached: those of pairs of tokens grow with its square."""
_MPNET_LONGEST = 128
_GROUP = 128  # activations that are rounded together for int8 weights


def encoder_properties(dtype: str, threads: int) -> dict[str, Any]:
    """Return OpenVINO's settings.

    On a processor with AMX, int8 weights are multiplied in bfloat16: 0.63 ms a row of MiniLM in
    place of 0.83 with rounded activations, and the cosine to float32 is 0.9993, not 0.998.
    """
    narrow = dtype == "bfloat16" or (dtype == "int8" and "amx_bf16" in cpu_flags())
    return properties("bf16" if narrow else "f32", threads, _GROUP)


@dataclass(slots=True)
class EncoderSession:
    """A compiled encoder. ``compiled`` compiles it, at first and after a failure.

    ``multiple``: the padded lengths are multiples of it. OpenVINO keeps shapes of a pass that broke
    off, so that a graph is not used again after it.
    """

    config: EncoderConfig
    pipeline: Pipeline
    compiled: Callable[[], ov.CompiledModel] | None
    _request: ov.InferRequest | None = None
    multiple: int = 1

    def padded(self, length: int) -> int:
        """Return the length to which a row is padded, whatever rows are beside it.

        Sums over more padding round differently, so rows of one pass have one padded length. Their
        results are then nearly always the same to the bit, alone and together.
        """
        return rounded_up(length, self.multiple)

    def compute(self, rows: Sequence[Encoded]) -> Floats:
        """Return the output of each row: [B, width]. Raises MemoryError, RuntimeError."""
        if self._request is None:
            assert self.compiled is not None  # not closed
            self._request = self.compiled().create_infer_request()
        request, self._request = self._request, None
        arrays = self._arrays(rows)
        for place in request.get_compiled_model().inputs:
            name = place.get_any_name()
            request.set_tensor(name, ov.Tensor(arrays[name]))
        request.infer()
        output: Floats = request.get_tensor(graph.OUTPUT).data.copy()
        self._request = request
        if self.pipeline.normed and self.config.head is None:
            return unit(output)
        return output

    def close(self) -> None:
        """Free everything. May be called twice."""
        self._request = self.compiled = None

    def _arrays(self, rows: Sequence[Encoded]) -> dict[str, npt.NDArray[Any]]:
        """Return all inputs that a graph may have."""
        lengths = np.array([len(row.ids) for row in rows])
        count, longest = len(rows), self.padded(int(lengths.max()))
        tokens = np.zeros((count, longest), np.int32)
        segments = np.zeros((count, longest), np.int32)
        for place, row in enumerate(rows):
            tokens[place, : len(row.ids)] = row.ids
            segments[place, : len(row.segments)] = row.segments
        segments = np.minimum(segments, max(0, self.config.segments - 1))
        real = np.arange(longest) < lengths[:, None]
        arrays: dict[str, npt.NDArray[Any]] = {
            graph.TOKENS: tokens,
            graph.SEGMENTS: segments,
            graph.MASK: np.where(real, 0, FAR).astype(np.float32)[:, None, None],
            graph.SHARES: shares(self.pipeline.pooling, lengths, longest),
        }
        cached = _cached if longest <= _SHORT else _of_length
        return arrays | cached(self.config, longest)


def unit(vectors: Floats) -> Floats:
    """Return vectors at length 1."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Floats = vectors / np.maximum(lengths, 1e-12)
    return scaled


def shares(pooling: Sequence[str], lengths: npt.NDArray[Any], longest: int) -> Floats:
    """Return the share of each token in each pooled state: [B, poolings, L]."""
    places, ends = np.arange(longest), lengths[:, None]
    real = places < ends
    parts = {
        "cls": places == 0 * ends,
        "lasttoken": places == ends - 1,
        "mean": real / ends,
        "mean_sqrt_len_tokens": real / np.sqrt(ends),
        "weightedmean": real * (places + 1) * 2 / (ends * (ends + 1)),
        "max": 0.0 * real,  # not a sum
    }
    return np.stack([parts[name] for name in pooling], 1).astype(np.float32)


def _of_length(config: EncoderConfig, length: int) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs that depend on nothing but the length of the rows."""
    places = np.arange(length)
    distance = places[:, None] - places  # of each query from each key
    arrays: dict[str, npt.NDArray[Any]] = {
        graph.POSITIONS: (places + config.family.offset).astype(np.int32)
    }
    for window, rope in zip(config.windows, config.ropes, strict=bool(config.ropes)):
        names = cosines_name(int(window > 0)), sines_name(int(window > 0))
        if names[0] not in arrays:
            turned = (part.transpose(1, 2, 0, 3) for part in Angles(rope).at(places))
            arrays |= zip(names, map(np.ascontiguousarray, turned), strict=True)
    if any(config.windows):
        near = np.where(np.abs(distance) <= max(config.windows), 0, FAR)
        arrays[graph.NEAR] = near.astype(np.float32)[None, None]
    if config.distances is not None:
        arrays[graph.DISTANCES] = _deberta_rows(config.distances, distance)[None]
    elif config.model_type == "mpnet":
        arrays[graph.DISTANCES] = _mpnet_rows(distance)[None]
    return arrays


_cached = lru_cache(maxsize=64)(_of_length)


def _mpnet_rows(distance: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return rows of MPNet's table: half for keys after the query; far distances share rows."""
    half = MPNET_BUCKETS // 2
    exact, far = half // 2, np.abs(distance)
    steps = np.log(np.maximum(far, 1).astype(np.float32) / exact) / np.log(_MPNET_LONGEST / exact)
    large = np.minimum(exact + (steps * (half - exact)).astype(np.int64), half - 1)
    rows = (distance < 0) * half + np.where(far < exact, far, large)
    return np.asarray(rows, np.int32)


def _deberta_rows(distances: Distances, distance: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return rows of DeBERTa's table, whose middle is distance 0."""
    if distances.buckets:
        middle = distances.buckets // 2
        far = np.where(np.abs(distance) < middle, middle - 1, np.abs(distance)).astype(np.float32)
        steps = np.log(far / middle) / np.log(np.float32((distances.longest - 1) / middle))
        large = np.ceil(steps * (middle - 1)) + middle
        distance = np.where(far <= middle, distance, large * np.sign(distance)).astype(np.int64)
    return np.asarray(np.clip(distance + distances.span, 0, 2 * distances.span - 1), np.int32)
