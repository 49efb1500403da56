"""Every operation of a model once: what a model that may be broken has to stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import core

from .verdict import check, check_rows

PROMPTS = ["ab abc no ab", "no", ""]
CHAT = [core.Message("user", "ab no")]
Use = Callable[[Any], object]


def outcome(path: Path, backend: str, **options: Any) -> str:
    """Load it, use it and close it: ``loaded``, or what the load raised."""
    try:
        model = core.load_model(path, backend=backend, **options)
    except Exception as error:  # noqa: BLE001 - judged there
        return check(error)
    with model:
        use_all(model)
    return "loaded"


def _scored(model: Any) -> None:
    if isinstance(model, core.Scoring):
        check_rows(model.score(PROMPTS, [" ab", "no", "b"]))


def _seen(model: Any) -> None:
    if isinstance(model, core.HiddenStates):
        check_rows(model.hidden_states(PROMPTS))


def _spelled(model: Any) -> None:
    if isinstance(model, core.Tokenizing):
        model.decode([*model.encode("ab \xe9 \n"), 0, 1, 9999])


def _told(model: Any) -> object:
    return model.info, model.choices(), model.metrics


USES: tuple[Use, ...] = (
    lambda model: list(model.generate(PROMPTS[0], max_tokens=3, temperature=0.8, seed=1)),
    lambda model: check_rows(model.classify(PROMPTS, labels=["ab", "no ab"])),
    lambda model: check_rows(model.classify(PROMPTS, return_logits=True)),
    lambda model: check_rows(model.batch_generate(PROMPTS, max_tokens=3)),
    lambda model: list(model.chat(CHAT, max_tokens=2)),
    *(_scored, _seen, _spelled, _told),
)


def use_all(model: Any) -> None:
    """Each operation, whatever came of the one before."""
    for use in USES:
        try:
            use(model)
        except Exception as error:  # noqa: BLE001 - judged there
            check(error)
