"""An encoder's tensors, by BERT's names, and as constants of a graph.

int8 is symmetric, with one scale per row of a matrix. Its products round activations by groups of
128 (`session`): on MiniLM the cosine to float32 was at least 0.998. With one scale per group of 32
columns it was 0.9999 in more than twice the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as ops

from core_openvino.encoder.config import MPNET_BUCKETS, EncoderConfig
from core_openvino.encoder.families import UNREAD, Family
from core_openvino.weights import bfloat16, finite
from core_runtime.checkpoint.arrays import StoredTensors
from core_runtime.checkpoint.files import Header, Shape, tensor_files
from core_runtime.checkpoint.tensors import FLOATS, refuse_unfit, unfit_tensors

Floats = npt.NDArray[np.float32]
_WIDEST = 127


class EncoderTensors:
    """The tensors of a directory; ``shapes`` are all that the config requires.

    Raises `core.InvalidModelError` that lists missing, extra and mis-shaped tensors.
    """

    def __init__(self, directory: Path, config: EncoderConfig) -> None:
        self.shapes = encoder_tensors(config)
        plain = partial(_plain_name, config.family, self.shapes.keys())
        self._stored = StoredTensors(tensor_files(directory), plain)
        _check(self._stored.header, self.shapes, directory)

    def take(self, name: str) -> Floats:
        """Return a tensor; it may be a view of the file."""
        return np.ascontiguousarray(self._stored.read(name), np.float32)

    @property
    def rounded(self) -> bool:
        """True if no matrix is stored at more than 16 bits."""
        return not self._stored.wide_bytes(self.shapes)


def _plain_name(family: Family, known: object, stored: str) -> str | None:
    """Return a tensor's name in BERT's spelling; None for one that is not read."""
    name = stored.removeprefix(family.prefix)
    for own, plain in family.spelling.items():
        name = name.replace(own, plain)
    if name.endswith((".gamma", ".beta")):  # of checkpoints from TensorFlow
        name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
    if name.endswith("position_ids") or (name.startswith(UNREAD) and name not in known):  # type: ignore[operator]
        return None
    return name


def _check(header: Header, shapes: dict[str, Shape], directory: Path) -> None:
    problems = [*unfit_tensors({name: (FLOATS, shapes[name]) for name in shapes}, header)]
    extra = sorted(header.keys() - shapes.keys())
    refuse_unfit([*problems, *(f"{name} is not part of this model" for name in extra)], directory)


def encoder_tensors(config: EncoderConfig) -> dict[str, Shape]:
    """Return the name and shape of every tensor, in BERT's spelling."""
    norms, attention, mlp = config.biases
    hidden, wide = config.hidden_size, config.intermediate_size
    tensors: dict[str, Shape] = {
        "embeddings.word_embeddings.weight": (config.vocab_size, config.embedding_size)
    }

    def linear(name: str, rows: int, columns: int, bias: bool) -> None:
        tensors[f"{name}.weight"] = (rows, columns)
        if bias:
            tensors[f"{name}.bias"] = (rows,)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = (hidden,)
        if norms:
            tensors[f"{name}.bias"] = (hidden,)

    # The embeddings, and tables that all layers share.
    if config.table:
        tensors["embeddings.position_embeddings.weight"] = (config.table, config.embedding_size)
    if config.segments:
        tensors["embeddings.token_type_embeddings.weight"] = (
            config.segments,
            config.embedding_size,
        )
    if config.embedding_size != hidden:
        linear("embeddings.embed_proj", hidden, config.embedding_size, False)
    norm("embeddings.LayerNorm")
    if config.model_type == "mpnet":
        tensors["encoder.relative_attention_bias.weight"] = (MPNET_BUCKETS, config.num_heads)
    if config.distances is not None:
        tensors["encoder.rel_embeddings.weight"] = (2 * config.distances.span, hidden)
        if config.distances.normed:
            norm("encoder.LayerNorm")

    for index in range(config.num_layers):
        layer = f"encoder.layer.{index}"
        if config.family.modern:
            linear(f"{layer}.attention.self.qkv", 3 * hidden, hidden, attention)
            linear(f"{layer}.attention.output.dense", hidden, hidden, attention)
            linear(f"{layer}.intermediate.dense", 2 * wide, hidden, mlp)
            linear(f"{layer}.output.dense", hidden, wide, mlp)
            if index:  # the first has the embeddings' norm before it
                norm(f"{layer}.attn_norm")
            norm(f"{layer}.mlp_norm")
            continue
        parts = ["query", "key", "value"]
        if config.distances is not None and not config.distances.shared:
            parts += ["pos_key"] * config.distances.content
            parts += ["pos_query"] * config.distances.position
        for part in parts:
            linear(f"{layer}.attention.self.{part}", hidden, hidden, True)
        linear(f"{layer}.attention.output.dense", hidden, hidden, True)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", wide, hidden, True)
        linear(f"{layer}.output.dense", hidden, wide, True)
        norm(f"{layer}.output.LayerNorm")

    if config.family.modern:
        norm("final_norm")
    if config.head is not None:
        names = config.family.head
        linear(names.dense, hidden, hidden, config.head.bias)
        if names.norm:
            norm(names.norm)
        linear(names.last, config.head.outputs, hidden, True)
    return tensors


class EncoderWeights:
    """The constants of a graph; ``take`` returns a tensor by its name."""

    def __init__(self, take: Callable[[str], Floats], dtype: str) -> None:
        self._take, self._dtype = take, dtype

    def vector(self, name: str) -> ov.Node:
        """Return a bias, or the weight of a norm."""
        return ops.constant(self.plain(name))

    def matrix(self, name: str) -> ov.Node:
        """Return a linear layer's weight: [out, in]."""
        matrix = self.plain(name)
        return by_rows(matrix) if self._dtype == "int8" else self._narrow(matrix)

    def table(self, name: str) -> ov.Node:
        """Return an embedding, which is never rounded to int8: it is read, not multiplied."""
        return self._narrow(self.plain(name))

    def plain(self, name: str) -> Floats:
        """Return a tensor in float32."""
        return finite(self._take(name), name, self._dtype)

    def _narrow(self, matrix: Floats) -> ov.Node:
        return ops.constant(matrix if self._dtype == "float32" else bfloat16(matrix))


def by_rows(matrix: Floats) -> ov.Node:
    """Return a matrix as int8 with a scale for each row, in the form that stays packed."""
    scales = np.abs(matrix).max(axis=-1, keepdims=True) / _WIDEST
    scales[scales == 0] = 1
    integers = np.rint(matrix / scales).astype(np.int8)
    return ops.multiply(ops.convert(ops.constant(integers), ov.Type.f32), ops.constant(scales))


def stored_bytes(shapes: dict[str, Shape], dtype: str) -> int:
    """Return the bytes of the constants at a dtype, and of the matrices packed for products."""
    width = {"float32": 4, "bfloat16": 2, "int8": 1}[dtype]
    total = 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        if len(shape) == 1:
            total += 4 * size
        elif "embeddings." in name:
            total += max(2, width) * size
        else:
            total += 2 * width * size
    return total
