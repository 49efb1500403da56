"""The settings of a model's session: its sizes, and OpenVINO's own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# int8 computes in float32, with activations rounded to integers. In bfloat16, without rounded ones,
# it classifies faster and keeps more labels (SmolLM2, a Xeon with AMX, one thread, CPU time: 11.2
# ms a row in place of 17.8, and 98.85 % of the labels of 2,513 rows with a margin above 0.02 in
# place of 97.69). But its logits then move by up to 0.9 with the number of rows of a pass, where
# they move by nothing, eight streams take 5.95 ms a token in place of 4.52, and bfloat16 weights
# are better at both. Scales of the least squared error kept 97.76 %, unrounded activations in
# float32 99.31 at 29 ms a row (580 rows; int8 97.93).
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}
_GROUP = 32  # columns of a matrix with one scale


def properties(precision: str, threads: int, group: int) -> dict[str, Any]:
    """Return OpenVINO's settings; its defaults would compute float32 graphs in bfloat16.

    ``group``: activations that are rounded together before they meet int8 weights.
    """
    return {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # affinity and cgroups decide
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": group,
    }


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Sizes of one session. ``cells``: positions of the KV cache, which all sequences share.

    ``n_seq_max``: sequences at once; ``n_batch``: tokens of one pass; ``threads``: of one pass;
    ``dtype``: of weights and arithmetic.
    """

    cells: int
    n_seq_max: int
    n_batch: int
    threads: int
    dtype: str

    @property
    def precision(self) -> str:
        """OpenVINO's name for the type of the arithmetic and of the cache."""
        return _PRECISIONS[self.dtype]

    def properties(self) -> dict[str, Any]:
        """Return OpenVINO's settings."""
        own = {"KV_CACHE_PRECISION": self.precision}
        return properties(self.precision, self.threads, _GROUP) | own
