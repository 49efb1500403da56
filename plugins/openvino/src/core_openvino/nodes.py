"""Small parts of graphs: constants, inputs and outputs with names, products, rotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops


def ints(*values: int) -> ov.Node:
    """Return a vector of integers."""
    return ops.constant(np.array(values, np.int64))


def integer(value: int) -> ov.Node:
    """Return one integer."""
    return ops.constant(np.array(value, np.int32))


def number(value: float) -> ov.Node:
    """Return one float."""
    return ops.constant(np.array(value, np.float32))


def wide(x: ov.Node) -> ov.Node:
    """Return a node as float32."""
    return x if x.get_element_type() == ov.Type.f32 else ops.convert(x, ov.Type.f32)


def product(x: ov.Node, weight: ov.Node) -> ov.Node:
    """Return ``x @ weight.T`` as float32, computed in the weight's type.

    A weight of bfloat16 that were converted to float32 in the graph would be stored as that, too.
    """
    kind = weight.get_element_type()
    narrow = x if kind == ov.Type.f32 else ops.convert(x, kind)
    return wide(ops.matmul(narrow, weight, False, True))


def rotated(x: ov.Node, cosines: ov.Node, sines: ov.Node, size: int) -> ov.Node:
    """Rotate the last axis of four, of this size: ``x cos + (-b, a) sin`` for its halves a, b."""
    # The pass that fuses RoPE finds the split by its axis 3, not by -1.
    first, second = ops.variadic_split(x, ints(3), ints(size // 2, size // 2)).outputs()
    turned = ops.concat([ops.multiply(second, number(-1.0)), first], -1)
    return ops.add(ops.multiply(x, cosines), ops.multiply(turned, sines))


def cosines_name(rope: int) -> str:
    """Return the name of the input with the cosines of the RoPE of this number."""
    return f"cosines.{rope}"


def sines_name(rope: int) -> str:
    """Return the name of the input with the sines of the RoPE of this number."""
    return f"sines.{rope}"


def named_input(name: str, shape: Sequence[int], kind: ov.Type) -> ov.Node:
    """Return an input of a graph."""
    node = ops.parameter(list(shape), kind, name=name)
    node.output(0).set_names({name})
    return node


def named_output(node: ov.Node, name: str) -> ov.Node:
    """Return an output of a graph."""
    result = ops.result(node)
    result.output(0).set_names({name})
    return result


def node_counts(compiled: ov.CompiledModel) -> Mapping[str, int]:
    """Return how many nodes of each type the compiled graph has."""
    counts: dict[str, int] = {}
    for node in compiled.get_runtime_model().get_ops():
        kind = str(node.get_rt_info()["layerType"].astype(str))
        counts[kind] = counts.get(kind, 0) + 1
    return counts
