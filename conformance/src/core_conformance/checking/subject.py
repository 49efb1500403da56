"""The subject of the checks: one backend with one model, and material to ask it with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any

from core.kit.support import offered
from core.options import LoadConfig
from core.protocols import Backend, Capability, TextModel
from core_conformance.checking.material import labels
from core_conformance.checking.script import record
from core_conformance.checking.script.spelling import keywords, spelled

OPERATIONS = (
    Capability.GENERATE,
    Capability.CHAT,
    Capability.CLASSIFY,
    Capability.BATCH_GENERATE,
    Capability.LABEL_SENTENCES,
)
"""Operations, of which a backend has to offer one: refusals alone certify nothing."""


@dataclass(frozen=True, slots=True)
class Effort:
    """``seconds`` is what one sweeping check may take; ``least`` passes it makes in any case.

    ``seed`` chooses the generated inputs. ``deep``: no sweep is cut, and inputs are generated for
    all of the ``seconds``.
    """

    seconds: float = 4.0
    least: int = 12
    seed: int = 0
    deep: bool = False


class Subject:
    """A backend under test. ``path`` is a model that it loads.

    ``options`` are load options that every load gets, those of core and the backend's own.
    ``model`` is loaded once and shared by all checks that leave it open, for loading is slow.
    ``effort`` says how far sweeps go; ``adapters`` is a folder with adapters of the model.
    ``keeps_files``: files that a failed check made and its report names are not deleted.
    """

    def __init__(
        self,
        backend: Backend,
        path: str,
        options: Mapping[str, object] | None = None,
        effort: Effort | None = None,
        adapters: str | None = None,
        keeps_files: bool = False,
    ) -> None:
        self.backend, self.path, self.adapters = backend, path, adapters
        self.keeps_files = keeps_files
        self.effort = effort or Effort()
        self._of_core, self._own = _sorted(options or {})
        self._model: TextModel | None = None
        self._open: list[TextModel] = []  # what checks have `loaded`

    @property
    def model(self) -> TextModel:
        """The shared model. Never close it; do not rely on what was asked of it before."""
        if self._model is None:
            self._model = self.load()
        return self._model

    @property
    def tolerance(self) -> float:
        """The most that two logits of one prompt may differ (`ModelInfo.logit_tolerance`).

        A model that is `loaded` with other options, more slots say, may state more than the shared
        one: while it is open, the larger one holds.
        """
        return max(self.stated_tolerance, 1e-6)

    @property
    def stated_tolerance(self) -> float:
        """The largest tolerance that the models state; it may be 0."""
        return max([self.model.info.logit_tolerance, *map(_tolerance, self._open)])

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The declared capabilities: the backend's, or its model's if models differ."""
        declared = self.backend.capabilities
        if Capability.DECLARING not in declared:
            return declared
        return declared & offered(self.model, self.backend)

    def declares(self, *capabilities: Capability) -> bool:
        """Return True when all of these capabilities are declared."""
        return self.capabilities.issuperset(capabilities)

    def operations(self, *among: Capability) -> list[Capability]:
        """Return the declared ones of some operations, or of all, by the names of their methods.

        The method of a model of label sentences is ``classify``, too.
        """
        declared = filter(self.declares, among or OPERATIONS)
        return [
            Capability.CLASSIFY if name is Capability.LABEL_SENTENCES else name for name in declared
        ]

    @property
    def classifies(self) -> bool:
        """True if there is ``classify``, with labels at least: a `load` supplies them."""
        return Capability.CLASSIFY in self.operations()

    def adapted(self, adapter_path: str) -> Subject:
        """Return a subject whose loads all have this adapter; the caller closes it."""
        options = {**self._of_core, **self._own, "adapter_path": adapter_path}
        return Subject(self.backend, self.path, options, self.effort, self.adapters)

    def load(self, **options: Any) -> TextModel:
        """Load a separate model, for a check that closes it or needs load options.

        A model of label sentences refuses ``classify`` without labels: it gets those of the
        material wherever a check names none.
        """
        own = {**self._own, **options.pop("options", {})}
        requested = {**self._of_core, **options, "backend": self.backend.name, "options": own}
        config = LoadConfig(**requested)
        spelled_options = {
            name: getattr(config, name) for name in requested if name != "options" or own
        }
        places = (self.path, config.adapter_path)
        number = record.loading(
            self.backend, spelled(self.path) + keywords(spelled_options), places
        )
        model = self.backend.load_model(self.path, config)
        labelled = Capability.LABEL_SENTENCES in offered(model, self.backend)
        return record.watched(model, number, {"labels": labels()} if labelled else {})

    @contextmanager
    def loaded(self, **options: Any) -> Iterator[TextModel]:
        """Load a model as `load` does, and close it at the end of the block."""
        model = self.load(**options)
        self._open.append(model)
        try:
            yield model
        finally:
            self._open = [other for other in self._open if other is not model]
            model.close()

    def close(self) -> None:
        """Close the shared model."""
        model, self._model = self._model, None
        if model is not None:
            model.close()


def _tolerance(model: TextModel) -> float:
    """Return the tolerance that a model states; 0 if that fails.

    Read late, because the model may not have been used yet.
    """
    with suppress(Exception):  # what info says is for other checks
        return model.info.logit_tolerance
    return 0.0


def _sorted(options: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, object]]:
    """Separate the load options that are fields of `LoadConfig` from the backend's own."""
    names = {field.name for field in fields(LoadConfig)} - {"backend", "options"}
    of_core = {name: value for name, value in options.items() if name in names}
    return of_core, {name: value for name, value in options.items() if name not in names}
