"""`CoreProvider`: Daft's protocol of text classifiers, with any model of `core`.

The protocol: ``daft/ai/protocols.py`` and ``daft/ai/provider.py`` of Daft 0.7.26.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from daft.ai.protocols import TextClassifierDescriptor
from daft.ai.provider import Provider
from daft.ai.typing import UDFOptions
from daft.ai.utils import get_gpu_udf_options

import core
import core_tasks
from core import validate
from core.api import shared_model
from core.kit.support import without_blank
from core.options import LABEL_SENTENCE
from core.secret import refuse_secrets
from core_tasks.deciding import Path, Question, decider, question_of

_LOGGER = logging.getLogger("core_daft")


class CoreProvider(Provider):
    """A provider for ``classify_text``; ``template`` has ``{text}`` for each text.

    A ``task`` or a ``head``, as an object or a file, replaces the template; the labels of the call
    must be its labels. ``backend`` and ``options`` are for `core.load_model`. ``concurrency`` is
    the number of models, with ``num_gpus`` each: by default one per GPU, or one without any. A text
    that is empty or white space fails unless ``allow_blank``.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "",
        *,
        template: str = "{text}",
        label_prefix: str = " ",
        label_sentence: str = LABEL_SENTENCE,
        task: core_tasks.Task | Path | None = None,
        head: Question | Path | None = None,
        backend: str = "",
        options: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        num_gpus: int | None = None,
        allow_blank: bool = False,
    ) -> None:
        self._model = os.fspath(model)
        self._question = None
        if task is not None or head is not None:
            self._question = question_of(task=task, head=head)
        self._wording = {
            "template": template,
            "label_prefix": label_prefix,
            "label_sentence": label_sentence,
        }
        refuse_secrets(options or {}, "the processes that Daft starts")
        self._loading = {"backend": backend, "options": dict(options or {})}
        self._placing = {"concurrency": concurrency, "num_gpus": num_gpus}
        self._allow_blank = validate.flag("allow_blank", allow_blank)

    @property
    def name(self) -> str:
        """The provider's name, "core"."""
        return "core"

    def get_text_classifier(
        self,
        model: str | None = None,
        *,
        batch_size: int = 1024,
        max_retries: int = 0,
        on_error: Literal["raise", "log", "ignore"] = "log",
    ) -> TextClassifierDescriptor:
        """Return the descriptor that makes classifiers on the workers.

        Daft calls this with the call's options.

        ``batch_size`` texts run at once. A text that fails has no label, which is logged ("log",
        the default) or not ("ignore"), or it ends the query ("raise").
        """
        if not (model or self._model):
            raise core.InvalidOptionError("model", model, "a path, or a name that discover shows")
        return Descriptor(
            model or self._model,
            self._question,
            self._wording,
            self._loading,
            self._placing,
            validate.integer("batch_size", batch_size, 1),
            validate.integer("max_retries", max_retries, 0),
            validate.one_of("on_error", on_error, ("raise", "log", "ignore")),
            self._allow_blank,
        )


@dataclass
class Descriptor(TextClassifierDescriptor):
    """The settings of a classifier, as values that can be sent to workers."""

    model: str
    question: Question | None
    wording: Mapping[str, str]
    loading: Mapping[str, Any]
    placing: Mapping[str, int | None]
    batch_size: int
    max_retries: int
    on_error: str
    allow_blank: bool = False

    def get_provider(self) -> str:
        """Return the provider's name."""
        return "core"

    def get_model(self) -> str:
        """Return the model's path or name."""
        return self.model

    def get_options(self) -> dict[str, Any]:
        """Return the options of the call."""
        return {
            "batch_size": self.batch_size,
            "max_retries": self.max_retries,
            "on_error": self.on_error,
        }

    def get_udf_options(self) -> UDFOptions:
        """Return the number of models for Daft to make, and of GPUs for each."""
        options = get_gpu_udf_options()
        for name, value in self.placing.items():
            if value is not None:
                setattr(options, name, value)
        # The classifier reports failed rows itself; an exception from it ends the query.
        options.max_retries, options.on_error = self.max_retries, "raise"
        return options

    def instantiate(self) -> Classifier:
        """Return the classifier. Raises the errors of `core.load_model`."""
        return Classifier(self, shared_model(self.model, **self.loading))


@dataclass
class Classifier:
    """A text classifier of Daft: texts in, and the label of each out."""

    descriptor: Descriptor
    model: core.TextModel
    _deciding: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)

    def classify_text(self, text: list[Any], labels: str | list[str]) -> list[Any]:
        """Return the label of each text; None for a null text, or one that failed.

        Raises `LabelError` for other labels than the task's or head's, the error of a text with
        ``on_error="raise"``, and the errors of `core_tasks.Task.classify`.
        """
        decide = self._decide((labels,) if isinstance(labels, str) else tuple(labels))
        texts = [value for value in text if value is not None]
        size = self.descriptor.batch_size
        results: list[core_tasks.Decision] = []
        for start in range(0, len(texts), size):
            results += decide(texts[start : start + size])
        failed = [decision.error for decision in results if decision.error is not None]
        if failed and self.descriptor.on_error == "raise":
            raise failed[0]
        if failed and self.descriptor.on_error == "log":
            _LOGGER.warning("%d texts failed; the first error: %s", len(failed), failed[0])
        answers = iter(results)
        return [None if value is None else next(answers).label for value in text]

    def _decide(self, labels: tuple[str, ...]) -> Any:
        """Return the function that decides between these labels."""
        if labels not in self._deciding:
            question = self.descriptor.question
            if question is None:
                question = question_of(labels, **self.descriptor.wording)
            elif sorted(question.labels) != sorted(labels):
                raise core.LabelError(
                    f"The labels {[*labels]!r:.80} differ from those of the task or head: "
                    f"{[*question.labels]!r:.80}. Pass these."
                )
            decide = decider(question, self.model)
            if not self.descriptor.allow_blank:
                decide = without_blank(decide, _failed)
            self._deciding[labels] = decide
        return self._deciding[labels]


def _failed(error: Exception) -> core_tasks.Decision:
    return core_tasks.Decision(error=error)
