"""What is chosen for the user at load, each with its reason; an option of the same name wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from core import validate
from core.errors import InvalidOptionError
from core.options import LoadConfig
from core.serving.choices import asked_integer, parallel_slots
from core.serving.host_cpus import usable_cores
from core.types import Choice
from core_llama_cpp.library import LOG_LEVELS
from core_llama_cpp.settings import CLASSIFY_SEQUENCES, MAX_SEQUENCES

OPTIONS = ("cache_cells", "flash_attn", "log_level", "n_batch", "n_threads", "n_ubatch")

_MAX_SLOTS = MAX_SEQUENCES - CLASSIFY_SEQUENCES
_MAX_THREADS = 512  # GGML_MAX_N_THREADS: more end the process
_MAX_BATCH = 2**20
_MIN_BATCH = 32
_SAME_KERNEL = 63


@dataclass(frozen=True, slots=True)
class Choices:
    """One load's choices, but for the context's (`core_llama_cpp.context_size`).

    ``n_batch``: tokens of one call into llama.cpp, between which a request can be cancelled;
    ``n_ubatch``: tokens of one pass through the layers.
    """

    parallel_slots: Choice
    n_threads: Choice
    n_batch: Choice
    n_ubatch: Choice
    flash_attn: bool | None
    log_level: str

    @classmethod
    def of(cls, config: LoadConfig, offload: bool, blas: bool = False) -> Self:
        """Choose; ``blas``: the build has one. Raises `InvalidOptionError` for a wrong value."""
        slots = _parallel_slots(config, offload)
        n_batch = _n_batch(config, offload, int(slots.value))
        flash = config.options.get("flash_attn")
        level = config.options.get("log_level", "off")
        return cls(
            slots,
            _n_threads(config),
            n_batch,
            _n_ubatch(config, int(n_batch.value), wide=offload or blas),
            None if flash is None else validate.flag("flash_attn", flash),
            validate.one_of("log_level", level, LOG_LEVELS),
        )

    def shown(self) -> tuple[Choice, ...]:
        """Those that a user may want to know."""
        return (self.parallel_slots, self.n_threads, self.n_batch, self.n_ubatch)


def _parallel_slots(config: LoadConfig, offload: bool) -> Choice:
    if config.parallel_slots > _MAX_SLOTS:
        raise InvalidOptionError(
            "parallel_slots", config.parallel_slots, f"at most {_MAX_SLOTS}, llama.cpp's limit"
        )
    return parallel_slots(config, offload)


def _n_threads(config: LoadConfig) -> Choice:
    asked = asked_integer(config, "n_threads", 1, _MAX_THREADS)
    if asked is not None:
        return asked
    return Choice("n_threads", str(usable_cores()), "one for each core that this process may use")


def _n_batch(config: LoadConfig, offload: bool, slots: int) -> Choice:
    asked = asked_integer(config, "n_batch", max(_MIN_BATCH, slots), _MAX_BATCH)
    if asked is not None:
        return asked
    if offload:
        return Choice("n_batch", "2048", "llama.cpp's default: enough tokens to keep a GPU busy")
    return Choice("n_batch", "512", "more tokens a call run no faster on a CPU, and stop later")


def _n_ubatch(config: LoadConfig, n_batch: int, wide: bool) -> Choice:
    asked = asked_integer(config, "n_ubatch", 1, n_batch)
    if asked is not None:
        return asked
    if wide:
        return Choice("n_ubatch", str(min(512, n_batch)), "llama.cpp's default, within n_batch")
    # From 64 rows on, ggml's flash attention on a CPU adds in another order (GGML_FA_TILE_Q).
    reason = "no slower, and one kernel for any batch: neighbours do not change a prompt's numbers"
    return Choice("n_ubatch", str(min(_SAME_KERNEL, n_batch)), reason)
