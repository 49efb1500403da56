"""This project's ``classify``, through its public API."""

from __future__ import annotations

from collections.abc import Sequence

import core
from benchmarks.classify_parts.runner import WARM_UP, Answer, Spec, spread
from benchmarks.classify_parts.workloads import LABELS
from benchmarks.line_process import UnavailableError


class Core:
    """One backend. Options: ``backend``; ``load``, the backend's own options; ``classify``, its."""

    def __init__(self, spec: Spec) -> None:
        backend, options = spec.options["backend"], spec.options.get("load", {})
        try:
            self._model = core.load_model(spec.model, backend=backend, options=options)
        except core.CoreError as error:
            raise UnavailableError(str(error)) from error
        self._options = spec.options.get("classify", {})
        self._on_gpu = bool(spec.options.get("on_gpu"))

    def about(self) -> str:
        """Return the values chosen at load."""
        choices = self._model.choices() if isinstance(self._model, core.Explaining) else ()
        return ", ".join(f"{choice.name} {choice.value}" for choice in choices)

    def warm_up(self, prompts: Sequence[str]) -> None:
        """A few prompts; on a GPU, which compiles a kernel for each new shape, all."""
        self.run(prompts if self._on_gpu else spread(prompts, WARM_UP))

    def run(self, prompts: Sequence[str]) -> Answer:
        """Make one call. Raises the first error of any row."""
        if self._on_gpu and isinstance(self._model, core.MemoryReporting):
            self._model.reset_peak_memory()
        results = self._model.classify(prompts, labels=LABELS, **self._options)
        for result in results:
            if result.error is not None:
                raise result.error
        metrics = self._model.metrics
        return Answer(
            [str(result.label) for result in results],
            metrics.prompt_tokens,
            metrics.prompt_tokens - metrics.cached_prompt_tokens,
            [result.margin or 0.0 for result in results],
            metrics.peak_memory_bytes if self._on_gpu else None,
        )
