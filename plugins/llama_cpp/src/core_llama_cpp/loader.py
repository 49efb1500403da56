"""From a path to a model in memory: plan everything from the header, then open it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.discovery import gguf_model
from core.errors import CoreError, UnsupportedOptionError
from core.gguf_header import GgufValue
from core.options import LoadConfig
from core.serving.served import Memory
from core.types import Choice, ModelInfo
from core_llama_cpp.adapter import find_adapter
from core_llama_cpp.chosen import Choices
from core_llama_cpp.context_size import ContextSize, context_size
from core_llama_cpp.devices import PLAIN, build_name
from core_llama_cpp.estimate import estimate, free_memory
from core_llama_cpp.failures import load_failure
from core_llama_cpp.files import ModelFiles
from core_llama_cpp.ggml import GgmlDevice, devices
from core_llama_cpp.header import ModelHeader
from core_llama_cpp.library import errors_said, load_library, set_log_level
from core_llama_cpp.probe import probe
from core_llama_cpp.session import Session
from core_llama_cpp.settings import CLASSIFY_SEQUENCES, Settings
from core_llama_cpp.soundness import check_soundness
from core_llama_cpp.tokenizer import Tokenizer

# How far one prompt's logits may move with what else runs. Where the same kernels compute it they
# do not move: seen on two real models, to the bit. Where ggml takes another one (passes of 64 rows,
# a row alone behind 512 cells on several threads, a BLAS, a GPU), activations are rounded to 8 bits
# elsewhere, and logits of these quantised models moved by up to 1.5.
_SAME_KERNELS, _OTHER_KERNELS = 1e-3, 2.0
_TILE_ROWS, _SPLIT_CELLS = 64, 512  # of ggml's flash attention on a CPU


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What a load leaves: the session, its tokenizer, and what was chosen on the way.

    ``slots``: rows that decode together; ``cells``: positions of the cache, shared by all
    sequences; ``n_batch``: tokens of one ``llama_decode``; ``n_outputs_max``: rows of logits that
    it may be asked for; ``held_bytes``: of weights and cache.
    """

    session: Session
    tokenizer: Tokenizer
    metadata: Mapping[str, GgufValue]
    info: ModelInfo
    stop_ids: frozenset[int]
    slots: int
    cells: int
    n_batch: int
    n_outputs_max: int
    rotates: bool
    choices: Sequence[Choice]
    held_bytes: int

    def memory(self) -> Memory:
        """Weights and cache: both are allocated whole at load, and stay as they are."""
        return Memory(self.held_bytes, self.held_bytes)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load will do, decided without llama.cpp."""

    files: ModelFiles
    header: ModelHeader
    settings: Settings
    choices: Choices
    context: ContextSize
    blas: bool = False


def plan(
    path: str | os.PathLike[str],
    config: LoadConfig,
    gpus: Sequence[GgmlDevice],
    blas: bool = False,
) -> Plan:
    """Raises what `probe`, `find_adapter` and `context_size` raise, and for options' values."""
    files, header = probe(path)
    check_soundness(header)
    choices = Choices.of(config, bool(gpus), blas)
    adapter = find_adapter(config.adapter_path, header)
    slots, n_ubatch = int(choices.parallel_slots.value), int(choices.n_ubatch.value)
    outputs, flash = slots + CLASSIFY_SEQUENCES, choices.flash_attn is not False
    needs = estimate(header, files, outputs, n_ubatch, flash)
    layers = config.gpu_layers if gpus else 0
    context = context_size(header, config, slots, needs, free_memory(gpus, layers))
    settings = Settings(
        n_ctx=int(context.cells.value),
        n_seq_max=outputs,
        n_batch=int(choices.n_batch.value),
        n_ubatch=n_ubatch,
        n_threads=int(choices.n_threads.value),
        gpu_layers=layers,
        offload=bool(gpus),
        adapter=adapter,
        flash_attn=choices.flash_attn,
    )
    return Plan(files, header, settings, choices, context, blas)


def load(
    backend: str,
    path: str | os.PathLike[str],
    config: LoadConfig,
    gpus: Sequence[GgmlDevice],
    chosen: Sequence[Choice],
) -> LoadedModel:
    """Load everything; ``gpus`` take layers.

    Raises `ModelError` for the files, `OptionError`, `OutOfMemoryError` before anything is
    allocated, `BackendUnavailableError`.
    """
    load_library(backend)
    planned = plan(path, config, gpus, build_name(devices()) != PLAIN)
    set_log_level(planned.choices.log_level)
    session = _session(planned.files.first, planned.settings)
    try:
        _refuse_rotation(backend, config, session)
        return _loaded(planned, session, config.context_overflow == "rotate", chosen)
    except BaseException:
        session.close()
        raise


def _loaded(
    planned: Plan, session: Session, rotates: bool, chosen: Sequence[Choice]
) -> LoadedModel:
    tokenizer = Tokenizer.of(session, planned.header.metadata)
    shown = (planned.context.length, planned.context.cells, *planned.choices.shown())
    return LoadedModel(
        session=session,
        tokenizer=tokenizer,
        metadata=planned.header.metadata,
        info=_info(planned, session),
        stop_ids=tokenizer.stop_ids,
        slots=int(planned.choices.parallel_slots.value),
        cells=planned.settings.n_ctx,
        n_batch=planned.settings.n_batch,
        n_outputs_max=planned.settings.n_outputs_max,
        rotates=rotates,
        choices=(*chosen, *shown),
        held_bytes=session.weight_bytes + planned.header.cell_bytes * planned.settings.n_ctx,
    )


def _refuse_rotation(backend: str, config: LoadConfig, session: Session) -> None:
    if config.context_overflow == "rotate" and not session.rotates:
        raise UnsupportedOptionError(
            "context_overflow",
            backend,
            "Positions cannot be dropped from this model's cache; leave it at 'stop'.",
        )


def _session(path: Path, settings: Settings) -> Session:
    with errors_said() as said:
        try:
            return Session.open(path, settings)
        except CoreError:
            raise
        except (RuntimeError, ValueError, MemoryError) as error:
            blamed = settings.adapter if "adapter" in str(error) else None
            raise load_failure(blamed or path, said or [str(error)]) from error


def _info(planned: Plan, session: Session) -> ModelInfo:
    header = planned.header
    found = next(gguf_model(str(header.path), "", 1, 0), None)
    return ModelInfo(
        architecture=header.architecture,
        vocab_size=session.vocab_size,
        num_layers=header.num_layers,
        hidden_size=header.hidden_size,
        quant_bits=found.quant_bits if found else 0,
        quant_group=found.quant_group if found else 0,
        context_length=int(planned.context.length.value),
        logit_tolerance=_tolerance(planned.settings, planned.blas),
    )


def _tolerance(settings: Settings, blas: bool) -> float:
    lone_rows = settings.n_threads == 1 or settings.n_ctx < _SPLIT_CELLS
    same = settings.flash_attn is not False and settings.n_ubatch < _TILE_ROWS and lone_rows
    return _SAME_KERNELS if same and not (blas or settings.offload) else _OTHER_KERNELS
