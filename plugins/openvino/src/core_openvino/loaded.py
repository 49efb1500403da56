"""Loading a model: its files become a session, a tokenizer, and the choices of the load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from core.kit.support import Chosen
from core.options import LoadConfig
from core.types import Choice, ModelInfo
from core_openvino import graph
from core_openvino.checkpoint import Checkpoint, read_checkpoint
from core_openvino.chosen import Choices
from core_openvino.library import core
from core_openvino.session import PagedSession
from core_openvino.settings import SessionSettings
from core_openvino.stored import layout, stored_matrices, weight_cache
from core_openvino.weights import Weights, stored_bytes
from core_runtime.choices import prefix_cache, suits_openvino, template_name
from core_runtime.machine import available_bytes
from core_runtime.processor import cpu_flags
from core_runtime.sequences.context import ContextSize, Estimate, context_size
from core_runtime.sequences.prefixes import KeptPrefixes
from core_runtime.sequences.session import CLASSIFY_SEQUENCES
from core_runtime.served import Memory
from core_runtime.tokenizer.model_tokenizer import Tokenizer

# How far one prompt's logits may move with how it was computed. Neighbours, shared prefixes, chunks
# and decoding moved nothing in SmolLM2 and Gemma 3, and 0.03 in a tiny bfloat16 model with a window
# (an Intel Xeon with AMX); the bounds leave room for other processors.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1, "int8": 0.1}
_FLOAT, _HALF = 4, 2


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: the session, its tokenizer, and the choices of the load."""

    session: PagedSession
    tokenizer: Tokenizer
    info: ModelInfo
    stop_ids: frozenset[int]
    slots: int
    choices: Sequence[Choice]
    weight_bytes: int
    own_context: int
    prefixes: KeptPrefixes
    rotates: bool = False

    def memory(self) -> Memory:
        """Report weights, the KV cache as allocated, and the cached prefixes."""
        fixed = self.weight_bytes + self.session.cache_bytes
        return Memory(fixed + self.prefixes.peak, fixed + self.prefixes.used)

    def close(self) -> None:
        """Free everything. May be called twice."""
        self.tokenizer.close()
        self.session.close()


def load(
    backend: str, path: str | os.PathLike[str], config: LoadConfig, chosen: Sequence[Choice]
) -> LoadedModel:
    """Load a model; ``chosen`` are the choices made before.

    Raises `core.ModelError`, `core.OptionError`, `core.OutOfMemoryError` before the work begins.
    """
    checkpoint = read_checkpoint(path, template_name(config))
    capped = checkpoint.config.attention_cap is not None
    choices = Choices.of(backend, config, checkpoint.tensors.rounded, cpu_flags(), capped)

    # The memory that the model takes, and the context that fits in the rest.
    disk = weight_cache(config, checkpoint.tensors, choices.dtype.value)
    needs, free = estimate(checkpoint, choices, disk.value), available_bytes()
    slots = choices.parallel_slots.value
    context = context_size(
        checkpoint.config.context_length, str(checkpoint.path), config, slots, needs, free
    )
    left = None if free is None else max(0, free - needs.total(context.cells.value))
    prefixes = prefix_cache(config, left)

    settings = SessionSettings(
        cells=context.cells.value,
        n_seq_max=slots + CLASSIFY_SEQUENCES,
        n_batch=choices.n_batch.value,
        threads=choices.n_threads.value,
        dtype=choices.dtype.value,
    )
    session = open_session(checkpoint, settings, disk.value)
    caches = (prefixes, disk)
    return _loaded(checkpoint, session, choices, context, caches, needs.weights, chosen)


def open_session(checkpoint: Checkpoint, settings: SessionSettings, disk: int = 0) -> PagedSession:
    """Compile the graphs of a model; ``disk`` bytes of converted matrices may be on disk."""
    tensors, dtype = checkpoint.tensors, settings.dtype
    stored = stored_matrices(checkpoint, dtype, disk)
    weights = Weights(tensors, dtype, stored.parts if stored else None)
    compile_graph = partial(core().compile_model, device_name="CPU", config=settings.properties())
    bodies = graph.body(checkpoint.config, weights)
    body = compile_graph(bodies.plain)
    head = compile_graph(graph.head(checkpoint.config, weights))
    compile_inner = partial(compile_graph, bodies.inner)
    return PagedSession(checkpoint.config, body, head, compile_inner, settings, stored)


def estimate(checkpoint: Checkpoint, choices: Choices, disk: int = 0) -> Estimate:
    """Estimate the memory of a model: weights, buffers of one pass, and bytes per position.

    ``disk``: bytes of converted matrices that may be on disk.
    """
    config, dtype = checkpoint.config, choices.dtype.value
    constants = checkpoint.tensors.shapes
    # OpenVINO keeps the constants beside the matrices that it packs for its products, in memory if
    # they are not mapped from a file.
    packed = {name: shape for name, shape in constants.items() if len(shape) == 2}
    if "lm_head.weight" in constants:  # else the embedding is packed as the head
        del packed["model.embed_tokens.weight"]
    weights = stored_bytes(packed, dtype)
    if layout(checkpoint.tensors, dtype)[1] > disk:
        weights += stored_bytes(constants, dtype)
    rows = choices.parallel_slots.value + CLASSIFY_SEQUENCES
    widest = max(3 * config.intermediate_size, 4 * config.hidden_size)
    buffers = _FLOAT * (rows * config.vocab_size + choices.n_batch.value * widest)
    width = _HALF if dtype == "bfloat16" else _FLOAT
    cell = 2 * config.num_layers * config.num_kv_heads * config.head_dim * width
    if config.attention_cap is not None:  # two masks, and copies of one layer's keys and values
        cell += _FLOAT * (2 * choices.n_batch.value + 6 * config.num_kv_heads * config.head_dim)
    return Estimate(weights, buffers, cell)


def _loaded(
    checkpoint: Checkpoint,
    session: PagedSession,
    choices: Choices,
    context: ContextSize,
    caches: tuple[Chosen[int], Chosen[int]],
    weight_bytes: int,
    chosen: Sequence[Choice],
) -> LoadedModel:
    config, dtype = checkpoint.config, choices.dtype.value
    bits, group = checkpoint.quantisation
    sizes = (cache.choice for cache in caches)
    shown = (context.length.choice, context.cells.choice, *choices.shown(), *sizes)
    formats = checkpoint.tokenizer.borrowed_format
    return LoadedModel(
        session=session,
        tokenizer=checkpoint.tokenizer,
        info=ModelInfo(
            architecture=config.model_type,
            vocab_size=config.vocab_size,
            num_layers=config.num_layers,
            hidden_size=config.hidden_size,
            quant_bits=bits,
            quant_group=group,
            context_length=context.length.value,
            logit_tolerance=TOLERANCE[dtype],
        ),
        stop_ids=checkpoint.stop_ids,
        slots=choices.parallel_slots.value,
        choices=(*chosen, *shown, suits_openvino(cpu_flags()), *formats, *checkpoint.unread),
        weight_bytes=weight_bytes,
        own_context=config.context_length,
        prefixes=KeptPrefixes(session, caches[0].value),
    )
