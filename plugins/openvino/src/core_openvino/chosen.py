"""Settings chosen automatically at load, with reasons; an option of the same name wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from core import validate
from core.errors import InvalidOptionError
from core.kit.support import ASKED, Chosen, asked_integer
from core.options import LoadConfig
from core.types import Choice
from core_runtime.choices import parallel_slots, pass_threads
from core_runtime.processor import (
    bfloat16_instructions,
    fast_bfloat16_instructions,
    int8_instructions,
)

DTYPES = ("float32", "bfloat16", "int8")
AUTO = "auto"
_MAX_SLOTS = 192
_MAX_THREADS = 1024
_MIN_BATCH, _BATCH, _MAX_BATCH = 32, 1024, 2**20
_CAPPED_BATCH = 256


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of one load. ``n_batch``: tokens of one pass, between which a call can stop."""

    dtype: Chosen[str]
    parallel_slots: Chosen[int]
    n_threads: Chosen[int]
    n_batch: Chosen[int]

    @classmethod
    def of(
        cls,
        backend: str,
        config: LoadConfig,
        rounded: bool,
        flags: frozenset[str],
        capped: bool = False,
    ) -> Self:
        """Choose everything.

        ``rounded``: the weights have at most 16 bits; ``flags``: the processor's instruction sets;
        ``capped``: the model caps its attention scores.
        Raises `core.InvalidOptionError` for a wrong value.
        """
        slots = parallel_slots(config, on_gpu=False)
        if slots.value > _MAX_SLOTS:
            raise InvalidOptionError("parallel_slots", slots.value, f"at most {_MAX_SLOTS}")
        threads = pass_threads(config, _MAX_THREADS)
        batch = asked_integer(config, "n_batch", max(_MIN_BATCH, slots.value), _MAX_BATCH)
        return cls(
            chosen_dtype(config, rounded, flags),
            slots,
            threads,
            batch or _batch(capped, slots.value),
        )

    def shown(self) -> tuple[Choice, ...]:
        """Return the choices that are shown to users."""
        shown = (self.dtype, self.parallel_slots, self.n_threads, self.n_batch)
        return tuple(chosen.choice for chosen in shown)


def _batch(capped: bool, slots: int) -> Chosen[int]:
    if capped:
        reason = "capped attention compares all tokens of a pass"
        return Chosen("n_batch", max(_CAPPED_BATCH, slots), reason)
    return Chosen("n_batch", _BATCH, "larger passes are not faster")


def chosen_dtype(config: LoadConfig, rounded: bool, flags: frozenset[str]) -> Chosen[str]:
    """Choose the dtype; raises `core.InvalidOptionError` for one that the processor lacks."""
    requested = validate.one_of("dtype", config.options.get("dtype", AUTO), (AUTO, *DTYPES))
    instructions = bfloat16_instructions(flags)
    if requested == "bfloat16" and not instructions:
        others = "float32 or int8" if int8_instructions(flags) else "float32"
        raise _lacks(requested, "AVX512_BF16, AMX or ARM BF16", others)
    if requested == "int8" and not int8_instructions(flags):
        raise _lacks(requested, "VNNI, AMX or ARM I8MM", "float32")
    if requested != AUTO:
        return Chosen("dtype", requested, ASKED)

    if not instructions:
        return Chosen("dtype", "float32", "this processor has no instructions for bfloat16")
    if not fast_bfloat16_instructions(flags):
        reason = "bfloat16 is slower on this processor, whose AMX may not be used"
        return Chosen("dtype", "float32", reason)
    names = " and ".join(instructions)
    if rounded:
        reason = f"the weights have at most 16 bits, and the processor has {names}"
        return Chosen("dtype", "bfloat16", reason)
    return Chosen("dtype", "float32", "the weights have 32 bits; dtype='bfloat16' is faster")


def _lacks(dtype: str, instructions: str, others: str) -> InvalidOptionError:
    return InvalidOptionError(
        "dtype", dtype, f"{others}: this processor has none of {instructions}"
    )
