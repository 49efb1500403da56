"""Loads, sound and failing, closed and dropped, again and again: all comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import core

from . import progress, resources
from .opened import Opener
from .using import use_all
from .verdict import check

TIMES = {"mlx_cpu": 50, "llama_cpp": 50, "mlx_lm": 10}
EACH = 64 * 1024  # bytes that one load may leave: a thread's stack is more


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """Case by case: closed, used and closed, dropped, failing; each so many times."""
    opener = Opener(place, variant)
    opener.warm()
    broken = place / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "llama"}')
    (broken / "model.safetensors").write_bytes(b"broken")
    (broken / "model.gguf").write_bytes(b"GGUF broken")

    def closed() -> None:
        opener.load().close()

    def used() -> None:
        with opener.load() as model:
            use_all(model)

    def dropped() -> None:
        next(opener.load().generate("count 9", max_tokens=9))

    def failing() -> None:
        try:
            core.load_model(broken, backend=variant, options=opener.least)
        except core.CoreError as error:
            check(error)

    kinds = (closed, used, dropped, failing)

    def growth(kind: Callable[[], None], times: int) -> int:
        """Run it so often; how many bytes the process has grown by each time."""
        before = resources.resident()
        for _ in range(times):
            progress.step()
            kind()
        return (resources.resident() - before) // times

    def case(number: int) -> str:
        kind, times = kinds[number % len(kinds)], TIMES[variant]
        growth(kind, times // 5)  # what comes with the first ones stays

        # What the C library keeps for itself comes and goes; what leaks comes every time.
        left = [growth(kind, times)]
        while left[-1] >= EACH and len(left) < 3:
            left.append(growth(kind, times))
        assert left[-1] < EACH, f"each load left {left} bytes, in rounds of {times}"
        return kind.__name__

    return case
