"""Settings chosen automatically at load, with reasons; an option of the same name wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from core import validate
from core.errors import InvalidOptionError
from core.kit.support import Chosen, asked_integer
from core.options import LoadConfig
from core.types import Choice
from core_llama_cpp.library import LOG_LEVELS
from core_llama_cpp.session import MAX_SEQUENCES
from core_runtime.choices import parallel_slots, pass_threads
from core_runtime.sequences.session import CLASSIFY_SEQUENCES

_MAX_SLOTS = MAX_SEQUENCES - CLASSIFY_SEQUENCES
_MAX_THREADS = 512  # GGML_MAX_N_THREADS: more abort the process
_MAX_BATCH = 2**20
_MIN_BATCH = 32
_SAME_KERNEL = 63


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of one load, except the context's (`core_llama_cpp.checkpoint.estimate`).

    ``n_batch``: tokens of one call into llama.cpp; a request can be cancelled between two calls.
    ``n_ubatch``: tokens of one pass through the layers.
    """

    parallel_slots: Chosen[int]
    n_threads: Chosen[int]
    n_batch: Chosen[int]
    n_ubatch: Chosen[int]
    flash_attn: bool | None
    log_level: str

    @classmethod
    def of(cls, config: LoadConfig, offload: bool, blas: bool = False) -> Self:
        """Choose all settings; ``blas``: the build has one.

        Raises `InvalidOptionError` for an option's invalid value.
        """
        slots = _parallel_slots(config, offload)
        n_batch = _n_batch(config, offload, slots.value)
        flash = config.options.get("flash_attn")
        level = config.options.get("log_level", "off")

        return cls(
            slots,
            pass_threads(config, _MAX_THREADS),
            n_batch,
            _n_ubatch(config, n_batch.value, wide=offload or blas),
            None if flash is None else validate.flag("flash_attn", flash),
            validate.one_of("log_level", level, LOG_LEVELS),
        )

    def shown(self) -> tuple[Choice, ...]:
        """Return the choices that are shown to users."""
        shown = (self.parallel_slots, self.n_threads, self.n_batch, self.n_ubatch)
        return tuple(chosen.choice for chosen in shown)


def _parallel_slots(config: LoadConfig, offload: bool) -> Chosen[int]:
    if config.parallel_slots > _MAX_SLOTS:
        raise InvalidOptionError(
            "parallel_slots", config.parallel_slots, f"at most {_MAX_SLOTS}, llama.cpp's limit"
        )
    return parallel_slots(config, offload)


def _n_batch(config: LoadConfig, offload: bool, slots: int) -> Chosen[int]:
    requested = asked_integer(config, "n_batch", max(_MIN_BATCH, slots), _MAX_BATCH)
    if requested is not None:
        return requested
    if offload:
        return Chosen("n_batch", 2048, "llama.cpp's default: enough tokens to keep a GPU busy")
    return Chosen("n_batch", 512, "larger calls are not faster on a CPU, and delay cancelling")


def _n_ubatch(config: LoadConfig, n_batch: int, wide: bool) -> Chosen[int]:
    requested = asked_integer(config, "n_ubatch", 1, n_batch)
    if requested is not None:
        return requested
    if wide:
        return Chosen("n_ubatch", min(512, n_batch), "llama.cpp's default, within n_batch")
    # From 64 rows on, ggml's flash attention on a CPU adds in another order (GGML_FA_TILE_Q).
    reason = "not slower, and the same kernel for any batch: results do not depend on other prompts"
    return Chosen("n_ubatch", min(_SAME_KERNEL, n_batch), reason)
