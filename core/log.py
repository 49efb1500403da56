"""Log records, through the standard library's ``logging``: loads, calls, closes; never texts.

Each package has the logger of its name; a model uses the logger of its class's package. ``logging``
is imported with the first record, not with ``core``.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from core.extensions import Explaining, MemoryReporting
from core.types import GenerateMetrics

if TYPE_CHECKING:
    import logging

SLOW_SECONDS = "CORE_SLOW_SECONDS"
"""Environment variable: calls that take longer than this many seconds are logged as warnings."""

_DEBUG, _INFO, _WARNING = 10, 20, 30  # of `logging`, which is not imported for them


def loaded(path: object, backend: str, model: object, seconds: float) -> None:
    """Log that a model was loaded."""
    if logger := _hears("core", _INFO):
        facts = "".join(f", {fact}" for fact in _facts(model))
        logger.info("loaded %r with %s in %.2f s%s", path, backend, seconds, facts)


def unapplied(name: str, parts: Sequence[tuple[str, str, bool]]) -> None:
    """Log which parts of a model in Ollama's store are not loaded (`core.models.ollama.unapplied`).

    The level is WARNING if the answers depend on one of them, else INFO.
    """
    level = _WARNING if any(changes for _, _, changes in parts) else _INFO
    if parts and (logger := _hears("core", level)):
        lines = "".join(f"\n  {kind}: {use}" for kind, use, _ in parts)
        logger.log(level, "%r of Ollama's store also has:%s", name, lines)


def called(model: object, backend: str, metrics: GenerateMetrics) -> None:
    """Log the cost of a finished call."""
    seconds = metrics.total_seconds
    slow = seconds > _limit(os.environ.get(SLOW_SECONDS, ""))
    level = _WARNING if slow else _DEBUG
    if logger := _hears(_package(model), level):
        logger.log(
            level,
            "%s: a %scall took %.3f s: %d prompt tokens, %d of them cached, and %d generated",
            backend,
            "slow " if slow else "",
            seconds,
            metrics.prompt_tokens,
            metrics.cached_prompt_tokens,
            metrics.generated_tokens,
        )


def closed(model: object, backend: str) -> None:
    """Log that a model was closed."""
    if logger := _hears(_package(model), _INFO):
        logger.info("%s: a model was closed", backend)


def misbehaved(backend: str, what: str) -> None:
    """Log that a backend broke the contract in a method that must not raise; ``what`` is how."""
    if logger := _hears("core", _WARNING):
        logger.warning("backend %r: %s. Upgrade its distribution, or report this", backend, what)


def _hears(package: str, level: int) -> logging.Logger | None:
    """Return the logger of a package if it is enabled for this level.

    The check does not take the lock of ``logging``: Ctrl-C while the lock is being acquired would
    leave it locked, and every thread that logs would wait forever.
    """
    known = sys.modules.get("logging")
    if known is None and level < _WARNING:
        return None  # no program can have enabled it
    import logging

    known_logger = logging.root.manager.loggerDict.get(package)
    logger = known_logger if isinstance(known_logger, logging.Logger) else logging.root
    if logging.root.manager.disable >= level or logger.getEffectiveLevel() > level:
        return None
    return logging.getLogger(package)


def _facts(model: object) -> list[str]:
    """Return facts about the model; an error here does not fail the load."""
    facts: list[str] = []
    with suppress(Exception):
        facts.append(f"model_type={getattr(model, 'model_type', '')}")
        choices = model.choices() if isinstance(model, Explaining) else ()
        facts += [f"device={choice.value}" for choice in choices if choice.name == "device"]
        if isinstance(model, MemoryReporting):
            facts.append(f"memory={model.memory().active_bytes} bytes")
    return facts


def _package(model: object) -> str:
    return type(model).__module__.partition(".")[0]


@cache
def _limit(value: str) -> float:
    """Return the seconds of the environment variable; without one, no call is slow."""
    try:
        return float(value or "inf")
    except ValueError:
        if logger := _hears("core", _WARNING):
            logger.warning("%s=%r is not a number of seconds: no limit is set", SLOW_SECONDS, value)
        return math.inf
