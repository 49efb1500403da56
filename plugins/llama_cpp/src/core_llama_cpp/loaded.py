"""Loading a path: everything is planned from the header, then the model is opened."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.errors import CoreError, UnsupportedOptionError
from core.kit.support import Chosen
from core.models.described import of_gguf
from core.options import LoadConfig
from core.types import Choice, ModelInfo
from core_llama_cpp.availability import PLAIN, build_name
from core_llama_cpp.checkpoint.adapter import find_adapter
from core_llama_cpp.checkpoint.estimate import context_size, estimate, free_memory
from core_llama_cpp.checkpoint.header import ModelHeader
from core_llama_cpp.checkpoint.notices import notices
from core_llama_cpp.checkpoint.probe import probe
from core_llama_cpp.checkpoint.soundness import check_soundness, is_mappable
from core_llama_cpp.chosen import Choices
from core_llama_cpp.ggml import GgmlDevice, devices
from core_llama_cpp.library import load_failure, load_library, logged_errors, set_log_level
from core_llama_cpp.session import LlamaSession, SessionSettings
from core_llama_cpp.text.tokenizer import Tokenizer
from core_llama_cpp.tolerance import logit_tolerance
from core_runtime.choices import prefix_cache, suits_llama_cpp
from core_runtime.gguf_files import ModelFiles
from core_runtime.machine import available_bytes
from core_runtime.processor import cpu_flags
from core_runtime.sequences.context import ContextSize
from core_runtime.sequences.prefixes import KeptPrefixes
from core_runtime.sequences.session import CLASSIFY_SEQUENCES
from core_runtime.served import Memory
from core_runtime.threads import interruptible

_UNMAPPED = Choice("mapped", "no", "its general.alignment is less than 32, which ggml requires")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: the session, its tokenizer, and the choices of the load.

    ``slots``: rows that decode concurrently; ``held_bytes``: weights and cache; ``own_context``:
    the model's context length.
    """

    session: LlamaSession
    tokenizer: Tokenizer
    info: ModelInfo
    stop_ids: frozenset[int]
    slots: int
    rotates: bool
    choices: Sequence[Choice]
    held_bytes: int
    own_context: int
    prefixes: KeptPrefixes

    def memory(self) -> Memory:
        """Report weights and cache, both allocated at load, and the prefixes cached now."""
        return Memory(self.held_bytes + self.prefixes.peak, self.held_bytes + self.prefixes.used)

    def close(self) -> None:
        """Free everything loaded, on the owner thread. May be called twice."""
        self.tokenizer.close(self.session.close)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The decisions of a load, made without llama.cpp."""

    files: ModelFiles
    header: ModelHeader
    settings: SessionSettings
    choices: Choices
    context: ContextSize
    prefix_bytes: Chosen[int]
    blas: bool = False


def plan(
    path: str | os.PathLike[str],
    config: LoadConfig,
    gpus: Sequence[GgmlDevice],
    blas: bool = False,
) -> LoadPlan:
    """Plan a load.

    Raises the errors of `probe`, `find_adapter` and `context_size`, and `InvalidOptionError`.
    """
    files, header = probe(path)
    check_soundness(files, header)

    # Settings from the options and the machine.
    choices = Choices.of(config, bool(gpus), blas)
    adapter = find_adapter(config.adapter_path, header)
    slots, n_ubatch = choices.parallel_slots.value, choices.n_ubatch.value
    outputs, flash = slots + CLASSIFY_SEQUENCES, choices.flash_attn is not False

    # The memory that the model takes, and the context that fits in the rest.
    needs = estimate(header, files, outputs, n_ubatch, flash)
    layers = config.gpu_layers if gpus else 0
    context = context_size(header, config, slots, needs, free_memory(gpus, layers))

    settings = SessionSettings(
        n_ctx=context.cells.value,
        n_seq_max=outputs,
        n_batch=choices.n_batch.value,
        n_ubatch=n_ubatch,
        n_threads=choices.n_threads.value,
        gpu_layers=layers,
        offload=bool(gpus),
        adapter=adapter,
        flash_attn=choices.flash_attn,
        mapped=is_mappable(header, files.all),
    )

    # Prefixes are kept in the host's memory, which the model takes a part of where it has no GPU.
    free = available_bytes()
    if free is not None and not gpus:
        free = max(0, free - needs.total(context.cells.value))
    return LoadPlan(files, header, settings, choices, context, prefix_cache(config, free), blas)


def load(
    backend: str,
    path: str | os.PathLike[str],
    config: LoadConfig,
    gpus: Sequence[GgmlDevice],
    chosen: Sequence[Choice],
) -> LoadedModel:
    """Load everything; ``gpus`` are the devices that take layers.

    Raises `ModelError` for the files, `OptionError`, `OutOfMemoryError` before anything is
    allocated, and `BackendUnavailableError`.
    """
    load_library(backend)
    planned = plan(path, config, gpus, build_name(devices()) != PLAIN)
    set_log_level(planned.choices.log_level)

    # A failure after the opening must free the session.
    session = _session(planned.files.first, planned.settings)
    try:
        _refuse_rotation(backend, config, session)
        return _loaded(planned, session, config.context_overflow == "rotate", chosen)
    except BaseException:
        session.close()
        raise


def _loaded(
    planned: LoadPlan, session: LlamaSession, rotates: bool, chosen: Sequence[Choice]
) -> LoadedModel:
    tokenizer = Tokenizer.of(session, planned.header.metadata)

    # Every choice is shown, an unmapped file only if there is one.
    context = (planned.context.length.choice, planned.context.cells.choice)
    prefix_bytes = planned.prefix_bytes
    unmapped = () if planned.settings.mapped else (_UNMAPPED,)
    suits = () if planned.settings.offload else (suits_llama_cpp(cpu_flags()),)
    unused = notices(planned.header, planned.settings.adapter)

    return LoadedModel(
        session=session,
        tokenizer=tokenizer,
        info=_info(planned, session),
        stop_ids=tokenizer.stop_ids,
        slots=planned.choices.parallel_slots.value,
        rotates=rotates,
        choices=(
            *chosen,
            *context,
            *planned.choices.shown(),
            prefix_bytes.choice,
            *unmapped,
            *suits,
            *tokenizer.borrowed_format,
            *unused,
        ),
        held_bytes=session.weight_bytes + planned.header.cell_bytes * planned.settings.n_ctx,
        own_context=planned.header.context_length,
        prefixes=KeptPrefixes(session, prefix_bytes.value),
    )


def _refuse_rotation(backend: str, config: LoadConfig, session: LlamaSession) -> None:
    if config.context_overflow == "rotate" and not session.rotates:
        raise UnsupportedOptionError(
            "context_overflow",
            backend,
            "Positions cannot be dropped from this model's cache. Use 'stop'.",
        )


def _session(path: Path, settings: SessionSettings) -> LlamaSession:
    return interruptible(partial(_opened, path, settings), LlamaSession.close)


def _opened(path: Path, settings: SessionSettings, stop: threading.Event) -> LlamaSession:
    with logged_errors() as log_lines:
        try:
            return LlamaSession.open(path, settings, stop)
        except CoreError:
            raise
        except (RuntimeError, ValueError, MemoryError) as error:
            blamed = settings.adapter if "adapter" in str(error) else None
            raise load_failure(blamed or path, log_lines or [str(error)]) from error


def _info(planned: LoadPlan, session: LlamaSession) -> ModelInfo:
    header, slots = planned.header, planned.choices.parallel_slots.value
    quantisation = of_gguf(header.metadata)
    return ModelInfo(
        architecture=header.architecture,
        vocab_size=session.vocab_size,
        num_layers=header.num_layers,
        hidden_size=header.hidden_size,
        quant_bits=quantisation.bits,
        quant_group=quantisation.group,
        context_length=planned.context.length.value,
        logit_tolerance=logit_tolerance(planned.settings, header, slots, planned.blas),
    )
