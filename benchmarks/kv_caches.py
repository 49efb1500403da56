"""Three forms of a KV cache in OpenVINO, on eight slots of unequal length.

    python benchmarks/kv_caches.py MODEL_DIR [--dtype bfloat16]

``paged``: blocks, as the backend has them. ``stateful``: variables of the graph, reordered by
``beam_idx``. ``explicit``: keys and values as inputs and outputs. The last two pad every slot to
the longest. Prints medians of CPU time on one thread, by turns: of a step with one token in each
slot, and of a pass in which one slot reads 50 tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from core_openvino.library import core, load_library

load_library()

import openvino as ov  # noqa: E402
from openvino import opset6  # noqa: E402
from openvino import opset13 as ops  # noqa: E402

from core_openvino import graph, nodes  # noqa: E402
from core_openvino.angles import Angles  # noqa: E402
from core_openvino.checkpoint import Checkpoint, read_checkpoint  # noqa: E402
from core_openvino.loaded import open_session  # noqa: E402
from core_openvino.nodes import ints, named_output  # noqa: E402
from core_openvino.settings import SessionSettings  # noqa: E402
from core_openvino.weights import Weights  # noqa: E402
from core_runtime.processor import processor_name  # noqa: E402

LENGTHS = (128, 237, 182, 345, 291, 20, 74, 400)
SLOTS, LONGEST, READ = len(LENGTHS), max(LENGTHS), 50
HIDDEN_SCORE = -1e9
Inputs = dict[str, npt.NDArray[Any]]


@dataclass(slots=True)
class DenseBody(graph._Body):
    """The layers of a decoder on rows of equal length, with one of the two padded caches."""

    stateful: bool = False
    sinks: list[ov.Node] = field(default_factory=list)

    def _paged(self, queries: ov.Node, keys: ov.Node, values: ov.Node, layer: int) -> ov.Node:
        config = self.config
        mask = self.input("mask", [SLOTS, 1, -1, -1], ov.Type.f32)
        split = self._split(queries, config.num_heads)
        whole = [
            self._repeated(self._with_past(name, self._split(new, config.num_kv_heads)))
            for name, new in ((graph.keys_name(layer), keys), (graph.values_name(layer), values))
        ]
        scale = ops.constant(np.array(config.attention_scale, np.float32))
        mixed = ops.scaled_dot_product_attention(split, *whole, mask, scale)
        flat = ints(-1, config.num_heads * config.head_dim)
        return ops.reshape(ops.transpose(mixed, ints(0, 2, 1, 3)), flat, False)

    def _split(self, x: ov.Node, heads: int) -> ov.Node:
        """Return [slots, heads, T, D] for [slots * T, heads * D]."""
        rows = ops.reshape(x, ints(SLOTS, -1, heads, self.config.head_dim), False)
        return ops.transpose(rows, ints(0, 2, 1, 3))

    def _with_past(self, name: str, new: ov.Node) -> ov.Node:
        shape = [SLOTS, self.config.num_kv_heads, -1, self.config.head_dim]
        if not self.stateful:
            past = ops.convert(self.input(name, shape, self.weights.cached), ov.Type.f32)
            whole = ops.concat([past, new], 2)
            self.outputs[graph.new_name(name)] = ops.convert(whole, self.weights.cached)
            return whole
        empty = ops.broadcast(ops.constant(np.float32(0)), ints(*(max(n, 0) for n in shape)))
        state = opset6.read_value(empty, name, ov.Type.f32, ov.PartialShape([-1, *shape[1:]]))
        past = ops.gather(state, self.input("beam_idx", [-1]), ints(0))
        whole = ops.concat([past, new], 2)
        self.sinks.append(opset6.assign(whole, name))
        return whole

    def _repeated(self, x: ov.Node) -> ov.Node:
        """Repeat each head of keys or values for its group of query heads, as the plugin knows."""
        group, shape = self.config.num_heads // self.config.num_kv_heads, ops.shape_of(x)
        first, last = (ops.gather(shape, ints(*axes), ints(0)) for axes in ((0, 1), (2, 3)))
        target = ops.concat([first, ints(group), last], 0)
        wide = ops.broadcast(ops.unsqueeze(x, ints(2)), target, broadcast_spec="BIDIRECTIONAL")
        return ops.reshape(wide, ints(0, self.config.num_heads, -1, self.config.head_dim), True)


class PagedSlots:
    """The backend's own session."""

    def __init__(self, checkpoint: Checkpoint, settings: SessionSettings) -> None:
        self._session = open_session(checkpoint, settings)
        for slot, length in enumerate(LENGTHS):
            self._pass({slot: length})

    def step(self) -> None:
        """Run one token in each slot."""
        self._pass(dict.fromkeys(range(SLOTS), 1))

    def mixed(self) -> None:
        """Run one token in each slot but the last, which starts again."""
        self._session.drop(SLOTS - 1, 0)
        self._pass({slot: READ if slot == SLOTS - 1 else 1 for slot in range(SLOTS)})

    def _pass(self, tokens: dict[int, int]) -> None:
        batch = self._session.new_batch()
        for slot, count in tokens.items():
            batch.add([5] * count, self._session.end(slot), slot, 1)
        self._session.decode(batch)


class PaddedSlots:
    """A graph with a padded cache. Its values are arbitrary; its shapes are those of the work."""

    def __init__(
        self, checkpoint: Checkpoint, settings: SessionSettings, *, stateful: bool
    ) -> None:
        config, self._stateful = checkpoint.config, stateful
        weights = Weights(checkpoint.tensors, settings.dtype)
        model = _dense(DenseBody(config, weights, stateful=stateful))
        compiled = core().compile_model(model, "CPU", settings.properties())
        self._angles = [Angles(rope) for rope in graph.ropes(config)]
        # Outputs of one request are the next one's inputs, so two take turns.
        self._requests = [compiled.create_infer_request() for _ in range(1 if stateful else 2)]
        shape = ov.Shape([SLOTS, config.num_kv_heads, LONGEST, config.head_dim])
        names = [
            f(n) for n in range(config.num_layers) for f in (graph.keys_name, graph.values_name)
        ]
        self._cache = {} if stateful else {n: ov.Tensor(weights.cached, shape) for n in names}
        self._past = 0 if stateful else LONGEST
        if stateful:
            self._pass(LONGEST)

    def step(self) -> None:
        """Run one token in each slot."""
        self._pass(1)

    def mixed(self) -> None:
        """Run as many tokens in each slot as the one reads: all are padded to it."""
        self._pass(READ)

    def _pass(self, tokens: int) -> None:
        request, inputs = self._requests[0], self._inputs(tokens)
        for name, values in inputs.items():
            request.set_tensor(name, ov.Tensor(values, shared_memory=True))
        for name, cached in self._cache.items():
            request.set_tensor(name, cached)
        request.infer()
        self._past += tokens
        self._cache = {name: request.get_tensor(graph.new_name(name)) for name in self._cache}
        self._requests.reverse()

    def _inputs(self, tokens: int) -> Inputs:
        total = self._past + tokens
        mask = np.zeros((SLOTS, 1, tokens, total), np.float32)
        for slot, length in enumerate(LENGTHS if self._past else ()):
            mask[slot, ..., : LONGEST - length] = HIDDEN_SCORE  # padded on the left
        mask += np.triu(np.full((tokens, total), HIDDEN_SCORE, np.float32), total - tokens + 1)
        rows = np.arange(1, SLOTS + 1, dtype=np.int32) * tokens - 1
        inputs: Inputs = {graph.TOKENS: np.full(SLOTS * tokens, 5, np.int32), graph.ROWS: rows}
        positions = np.concatenate([np.arange(n, n + tokens) for n in LENGTHS])
        for place, angles in enumerate(self._angles):
            cosines, sines = angles.at(positions)
            inputs |= {nodes.cosines_name(place): cosines, nodes.sines_name(place): sines}
        beams = {"beam_idx": np.arange(SLOTS, dtype=np.int32)} if self._stateful else {}
        return {**inputs, "mask": mask, **beams}


def _dense(parts: DenseBody) -> ov.Model:
    """Return the graph from tokens to the last hidden state of each slot."""
    tokens = parts.input(graph.TOKENS, [-1])
    x = parts.weights.embedded(tokens)
    for layer in range(parts.config.num_layers):
        x = parts.layer(x, layer)
    rows = ops.gather(x, parts.input(graph.ROWS, [-1]), ints(0))
    parts.outputs[graph.HIDDEN] = parts.norm(rows, "model.norm")
    outputs = [named_output(node, name) for name, node in parts.outputs.items()]
    inputs = list(parts.inputs.values())
    if parts.sinks:
        return ov.Model(outputs, parts.sinks, inputs, graph.HIDDEN)
    return ov.Model(outputs, inputs, graph.HIDDEN)


def medians(runs: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """Return the median CPU milliseconds of each function, by turns."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            start = time.process_time()
            run()
            spent[name].append(1000 * (time.process_time() - start))
    return {name: round(statistics.median(values), 1) for name, values in spent.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    flags = parser.parse_args(arguments)
    settings = SessionSettings(8192, 4 * SLOTS, 1024, 1, flags.dtype)
    checkpoint = read_checkpoint(flags.model, None)
    slots: dict[str, PagedSlots | PaddedSlots] = {
        "paged": PagedSlots(checkpoint, settings),
        "stateful": PaddedSlots(checkpoint, settings, stateful=True),
        "explicit": PaddedSlots(checkpoint, settings, stateful=False),
    }
    steps = {name: own.step for name, own in slots.items()}
    medians(steps, 3)  # kernels of a new shape are made at its first run
    results = {
        "processor": processor_name(),
        "dtype": flags.dtype,
        "step_ms": medians(steps, 20),
        "mixed_ms": medians({name: own.mixed for name, own in slots.items()}, 3),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
