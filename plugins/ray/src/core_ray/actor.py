"""The actor: it loads a model once, and answers one batch after another.

If a process dies of a batch, the next one runs the batch row by row, so that the row is identified
and the others are not lost. A model that cannot be loaded ends the job at the first batch: if the
constructor raised, each actor would report it, with Ray's entire traceback.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

import core
from core.kit.support import without_blank
from core_ray.errors import ActorLoadError, PoisonedRowError
from core_ray.record import Reporter
from core_ray.work import Work, with_answers

_LOAD = "load"


class Actor:
    """An actor that adds a model's answers to batches of rows; ``text`` is the column of texts.

    ``tries`` processes, at least two, may die of a row, or of a load. A blank text is an error of
    its row unless ``allow_blank``.
    """

    def __init__(
        self,
        work: Work,
        load: Callable[[], core.TextModel],
        text: str,
        reporter: Reporter,
        tries: int = 3,
        allow_blank: bool = False,
    ) -> None:
        self._work, self._text, self._reporter, self._tries = work, text, reporter, tries
        self._failure = ""
        if reporter.begun(_LOAD) > tries:
            self._failure = f"{tries} processes died while loading it"
        else:
            try:
                ask = work.bound(load())
                self._ask = ask if allow_blank else without_blank(ask, work.failed)
            except Exception as error:  # noqa: BLE001 - any of them ends the job
                self._failure = f"{type(error).__name__}: {error}"
        reporter.ended(_LOAD)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a batch with their answers. Raises `ActorLoadError`, `OptionError`."""
        if self._failure:
            where = socket.gethostname()
            raise ActorLoadError(f"Cannot load the model on {where}: {self._failure}")
        if self._text not in rows.column_names:
            known = f"a column: {', '.join(rows.column_names)}"
            raise core.InvalidOptionError("text", self._text, known)
        values = rows.column(self._text)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            raise core.InvalidOptionError(
                "text", self._text, f"a column of text, not {values.type}"
            )
        results = iter(self._watched(values.drop_null().to_pylist()))
        answers = [next(results) if known else None for known in values.is_valid().to_pylist()]
        return with_answers(rows, self._work.columns, answers)

    def _watched(self, texts: Sequence[str]) -> Sequence[Any]:
        """Return the results of texts, recording meanwhile that they run."""
        key = _key(*texts)
        if self._reporter.begun(key) == 1:
            results = self._ask(texts) if texts else []
        else:
            results = [self._alone(text) for text in texts]
        self._reporter.ended(key)
        return results

    def _alone(self, text: str) -> Any:
        """Return the result of a row of a batch that a process died of.

        The row may be the cause.
        """
        key = _key("alone", text)
        # Its own beginnings but for this one died, and the batch did.
        if self._reporter.begun(key) >= self._tries:
            return self._work.failed(PoisonedRowError(self._tries))
        [result] = self._ask([text])
        self._reporter.ended(key)
        return result


def _key(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "replace")).hexdigest()


def _default(model: str, options: Mapping[str, Any]) -> core.Backend:
    """Return the backend that `core.load_model` chooses for a model and these options."""
    from core.kit.support import load_needs
    from core.models.locating import located
    from core.registry import REGISTRY

    place = located(model)
    needs = load_needs(place.adapted(core.LoadConfig(**options)))
    return REGISTRY.choose(place.path, *needs.values()).backend


def load_model(
    model: str, backend: str, options: Mapping[str, Any], threads: int | None
) -> core.TextModel:
    """Return the model of this path or name on this node, with ``threads`` threads.

    Ray limits a process to as many OpenMP threads as its actor has CPUs: without ``threads`` that
    limit is removed, and the backend uses the cores that are free.
    """
    from core.choosing import own_options

    if threads is None:
        os.environ.pop("OMP_NUM_THREADS", None)
        return core.load_model(model, backend=backend, **options)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    chosen = core.get_backend(backend) if backend else _default(model, options)
    if "n_threads" in own_options(chosen):
        options = {**options, "options": {"n_threads": threads, **options.get("options", {})}}
    return core.load_model(model, backend=chosen.name, **options)
