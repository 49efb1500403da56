"""Loading an encoder: its files become a session, a tokenizer, and the choices of the load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from core import validate
from core.errors import InvalidOptionError, OutOfMemoryError
from core.kit.support import ASKED, Chosen, asked_integer
from core.options import LoadConfig
from core.types import Choice, ModelInfo
from core_openvino.chosen import chosen_dtype
from core_openvino.encoder.config import EncoderConfig, load_encoder_config
from core_openvino.encoder.graph import encoder
from core_openvino.encoder.pipeline import Pipeline, read_pipeline
from core_openvino.encoder.probe import encoder_directory
from core_openvino.encoder.session import EncoderSession, encoder_properties
from core_openvino.encoder.tensors import EncoderTensors, EncoderWeights, stored_bytes
from core_openvino.encoder.tokenizer import EncoderTokenizer
from core_openvino.library import core
from core_runtime.checkpoint.fields import JsonFiles
from core_runtime.checkpoint.keys import report
from core_runtime.checkpoint.own_files import report_unread
from core_runtime.choices import pass_threads
from core_runtime.machine import available_bytes
from core_runtime.processor import cpu_flags
from core_runtime.served import Memory
from core_runtime.tokenizer.files import read_tokenizer_files

SCALE = 20.0
"""The factor of a cosine, as sentence-transformers' losses have it."""

# How far a score may move with the rows beside it. On a Xeon with AMX MiniLM's did not; those of
# tiny random models did by 1e-7 in int8 heads, by 0.005 in bfloat16. Other processors have room.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05, "int8": 0.05}
# Padding costs float32 more than the passes that it saves. int8 products of fewer than 8 rows take
# another kernel, whose results differ.
_MULTIPLE = {"float32": 1, "bfloat16": 8, "int8": 8}
_BATCH = 1024
_MAX_THREADS, _MAX_BATCH = 1024, 2**20


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """An encoder in memory. ``n_batch``: tokens of one pass; ``scale``: of a score."""

    session: EncoderSession
    tokenizer: EncoderTokenizer
    info: ModelInfo
    choices: Sequence[Choice]
    own_context: int
    n_batch: int
    weight_bytes: int
    stop_ids: frozenset[int] = frozenset()
    rotates: bool = False

    @property
    def config(self) -> EncoderConfig:
        """The encoder's config."""
        return self.session.config

    def memory(self) -> Memory:
        """Report the weights."""
        return Memory(self.weight_bytes, self.weight_bytes)

    def close(self) -> None:
        """Free everything. May be called twice."""
        self.tokenizer.close()
        self.session.close()


def load(
    path: str | os.PathLike[str], options: LoadConfig, chosen: Sequence[Choice]
) -> LoadedEncoder:
    """Load a directory; ``chosen`` are the choices made before.

    Raises `core.ModelError`, `core.OptionError`, `core.OutOfMemoryError` before the work begins.
    """
    # The directory's files.
    directory = encoder_directory(path)
    files = JsonFiles(directory)
    config = load_encoder_config(directory, files)
    report(config.notes, str(directory / "config.json"))
    pipeline = read_pipeline(directory, config, files)
    unread = report_unread(directory, with_adapter=False)
    tensors = EncoderTensors(directory, config)
    tokenizer = EncoderTokenizer(
        read_tokenizer_files(directory, files, ends=True), pipeline, str(directory)
    )
    tokenizer.check_rows(config.vocab_size, directory)

    # Settings.
    context = _context(options, config, pipeline)
    truncate = _truncate(options)
    tokenizer.limit = context.value if truncate.value else 0
    dtype = chosen_dtype(options, tensors.rounded, cpu_flags())
    threads = pass_threads(options, _MAX_THREADS)
    batch = asked_integer(options, "n_batch", 1, _MAX_BATCH) or Chosen(
        "n_batch", _BATCH, "larger passes are not faster"
    )
    settings = (context, dtype, threads, batch, truncate)
    size = stored_bytes(tensors.shapes, dtype.value)
    _check_memory(directory, size)

    # The graph, compiled now and not by the first call.
    weights = EncoderWeights(tensors.take, dtype.value)
    model = encoder(config, weights, pipeline)
    compiled = partial(
        core().compile_model, model, "CPU", encoder_properties(dtype.value, threads.value)
    )
    request = compiled().create_infer_request()
    return LoadedEncoder(
        session=EncoderSession(config, pipeline, compiled, request, _MULTIPLE[dtype.value]),
        tokenizer=tokenizer,
        info=ModelInfo(
            architecture=config.model_type,
            vocab_size=config.vocab_size,
            num_layers=config.num_layers,
            hidden_size=_width(config, pipeline),
            quant_bits=0,
            quant_group=0,
            context_length=context.value,
            logit_tolerance=TOLERANCE[dtype.value],
        ),
        choices=(*chosen, *(one.choice for one in settings), *_scoring(config, pipeline), *unread),
        own_context=config.positions,
        n_batch=batch.value,
        weight_bytes=size,
    )


def _width(config: EncoderConfig, pipeline: Pipeline) -> int:
    """Return the size of an embedding; of a state in a cross-encoder."""
    if pipeline.dense:
        return len(pipeline.dense[-1].weight)
    return config.hidden_size * len(pipeline.pooling)


def _context(options: LoadConfig, config: EncoderConfig, pipeline: Pipeline) -> Chosen[int]:
    own = config.positions
    if options.context_len > own:
        raise InvalidOptionError(
            "context_len", options.context_len, f"at most {own}, the model's positions"
        )
    if options.context_len:
        return Chosen("context_len", options.context_len, ASKED)
    if pipeline.longest is not None and pipeline.longest < own:
        reason = f"the model's own limit for texts; it has {own} positions"
        return Chosen("context_len", pipeline.longest, reason)
    return Chosen("context_len", own, "the model's positions")


def _truncate(options: LoadConfig) -> Chosen[bool]:
    requested = options.options.get("truncate")
    if requested is None:
        return Chosen("truncate", False, "a text that is too long is its row's error")
    return Chosen("truncate", validate.flag("truncate", requested), ASKED)


def _scoring(config: EncoderConfig, pipeline: Pipeline) -> tuple[Choice, ...]:
    if config.head is not None:
        reason = "of a text and a label's sentence, read together"
        return (Choice("score", f"logit of {config.head.name}", reason),)
    reason = "of a text and a label's sentence; a calibration fits a temperature"
    return (Choice("score", f"{SCALE:g} x cosine", reason), *pipeline.choices())


def _check_memory(directory: object, size: int) -> None:
    free = available_bytes()
    if free is not None and size > free:
        raise OutOfMemoryError(
            f"{directory} needs about {size / 2**30:.2f} GiB, and {free / 2**30:.2f} GiB are free. "
            "Free some memory, or load it with dtype='int8'."
        )
