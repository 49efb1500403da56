"""A task: the question about each text, and its calibration.

::

    task = core_tasks.Task("{text} This news is about", labels=("finance", "sports"))
    task = task.fit_prior(model)
    for decision in task.classify(model, others):
        print(decision.label, decision.probabilities, decision.level)

It only needs `classify` with labels, so every backend that supports them supports tasks. A
calibration is fitted beforehand and does not change: an answer depends only on its own text.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import ClassVar, Literal, Self

from core import validate
from core.errors import (
    CalibrationError,
    InvalidOptionError,
    LabelError,
    TaskError,
)
from core.extensions import ClassifyStreaming
from core.kit.base import Guessable
from core.kit.support import (
    checked_prompts,
    checked_stream,
    compares_sentences,
    without_blank,
)
from core.models.fingerprint import fingerprint_of
from core.options import LABEL_SENTENCE, GenerateConfig
from core.protocols import TextModel
from core.types import ClassifyResult
from core_tasks.asking import Answer, Progress, answers, classified
from core_tasks.blank import without_blank_texts
from core_tasks.calibration import Calibration, Key
from core_tasks.decision import Decision, decided, gathered
from core_tasks.guesses import OF_TASKS
from core_tasks.template import Template
from core_tasks.words import all_words, check_numbers, flat, may_overlap, tokenizing

Mode = Literal["one", "many", "levels"]
PriorMethod = Literal["batch", "content-free", "mean", "pmi"]
GoldMethod = Literal["temperature", "isotonic"]
Gold = Sequence[str] | Sequence[Collection[str]]
"""The gold label of each text; in mode "many", its gold labels."""

YES, NO = "yes", "no"
_BLOCK = 256  # texts per call, for a model that does not stream


@dataclass(frozen=True, slots=True)
class Task(Guessable):
    """A classification task: a template with ``{text}``, and the labels that may follow it.

    ``mode`` is "one" (the best label), "levels" (ordinal labels, which are numbers) or "many"
    (multi-label: yes or no for each label, which the template contains as ``{label}``, usually
    after the text, so that the text is computed once). ``words`` are the verbalizers of a label, by
    default the label itself; with "many", the words for "yes" and for "no".

    With a model of label sentences, such as an encoder, a label does not follow the prompt: the
    prompt, usually the text alone (template ``{text}``), is compared with its ``label_sentence``.
    ``label_prefix`` then keeps its default, and mode "many" is refused.

    ``threshold`` is the minimum probability of an accepted decision; with "many", the minimum
    probability at which a label holds (default 0.5). ``model`` names the model that the task was
    made for. Raises `TaskError` and `LabelError` for an invalid task.
    """

    template: str
    labels: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    mode: Mode = "one"
    calibration: Calibration | None = None
    threshold: float | None = None
    label_prefix: str = " "
    model: str = ""
    label_sentence: str = LABEL_SENTENCE
    _guesses: ClassVar[Mapping[str, str]] = OF_TASKS

    def __post_init__(self) -> None:
        mode = validate.one_of("mode", self.mode, ("one", "many", "levels"))
        labels = GenerateConfig(
            labels=self.labels, label_prefix=self.label_prefix, label_sentence=self.label_sentence
        ).labels
        possible = (YES, NO) if mode == "many" else labels
        if not labels or len(possible) < 2:
            raise LabelError(f"A task of mode {mode!r} needs more labels than {[*labels]!r:.80}.")
        if mode == "levels":
            check_numbers(labels)
        places = {"text", "label"} if mode == "many" else {"text"}
        template = validate.unicode("template", validate.text("template", self.template))
        Template(template).check(places)
        if self.threshold is not None:
            validate.real("threshold", self.threshold, 0.0, 1.0)
        validate.text("model", self.model)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "words", all_words(self.words, possible))

    @property
    def level(self) -> str:
        """The method of the calibration, such as "content-free"; "raw" without a calibration."""
        return "raw" if self.calibration is None else self.calibration.method

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions about a text: each label in mode "many", else one without a name."""
        return self.labels if self.mode == "many" else ("",)

    def key(self, model: TextModel) -> Key:
        """Return the key of a calibration of this task with this model."""
        questions = self.labels if self.mode == "many" else ()
        fingerprint = fingerprint_of(model)
        return Key(
            fingerprint,
            self.template,
            self.words,
            questions,
            self.label_prefix,
            self.label_sentence,
        )

    def prompts(self, texts: Iterable[str]) -> list[str]:
        """Return the prompt of each text; in mode "many" one per label, text after text."""
        return [
            prompt
            for text in checked_prompts("Task.prompts", texts)
            for prompt in self._asked(text)
        ]

    # ----------------------------------------------------------------------- answers

    def classify(
        self,
        model: TextModel,
        texts: Sequence[str],
        config: GenerateConfig | None = None,
        *,
        allow_blank: bool = False,
        progress: Progress | None = None,
    ) -> list[Decision]:
        """Return one decision for each text, in order; a failure of one text is its ``error``.

        So is an empty text, or white space, unless ``allow_blank``. ``config`` is for ``cancel``
        and ``timeout``; the labels are the task's. With ``progress`` the prompts run in blocks, and
        ``progress(done, total)`` is called with counts of prompts before the first one and after
        each. Raises `CalibrationError`, before any work, if the calibration is for another model or
        task.
        """
        request = self.request(model, config)

        def ask(filled: Sequence[str]) -> list[Decision]:
            prompts = self.prompts(filled)
            results = classified(model, prompts, request, progress)
            return [*self.decisions(model, prompts, results)]

        decide = ask if allow_blank else without_blank(ask, self._failed)
        return decide(checked_prompts("Task.prompts", texts))

    def classify_iter(
        self,
        model: TextModel,
        texts: Iterable[str],
        config: GenerateConfig | None = None,
        *,
        allow_blank: bool = False,
    ) -> Iterator[Decision]:
        """Do `classify` for more texts than fit in memory, from any iterable."""
        request = self.request(model, config)
        stream = checked_stream("Task.classify_iter", texts)
        if allow_blank:
            return self._in_order(model, stream, request)

        def classify(filled: Iterator[str]) -> Iterator[Decision]:
            return self._in_order(model, filled, request)

        return without_blank_texts(stream, classify, self._failed, "Task.classify_iter")

    def _in_order(
        self, model: TextModel, stream: Iterable[str], request: GenerateConfig
    ) -> Iterator[Decision]:
        if not isinstance(model, ClassifyStreaming):
            return self._in_blocks(model, stream, request)

        # The model reads ahead; a prompt is stored until its result arrives.
        waiting: deque[str] = deque()

        def asked() -> Iterator[str]:
            for index, text in enumerate(stream):
                checked_prompts("Task.classify_iter", [text], index)
                prompts = self._asked(text)
                waiting.extend(prompts)
                yield from prompts

        results = model.classify_iter(asked(), request)
        return self.decisions(model, iter(waiting.popleft, None), results)

    def _in_blocks(
        self, model: TextModel, texts: Iterable[str], request: GenerateConfig
    ) -> Iterator[Decision]:
        stream = iter(texts)
        while block := [*islice(stream, _BLOCK)]:
            prompts = self.prompts(block)
            yield from self.decisions(model, prompts, model.classify(prompts, request))

    def _asked(self, text: str) -> list[str]:
        template = Template(self.template)
        if self.mode == "many":
            return [template.filled({"text": text, "label": label}) for label in self.labels]
        return [template.filled({"text": text})]

    def request(self, model: TextModel, config: GenerateConfig | None = None) -> GenerateConfig:
        """Return the options of this task's classify calls.

        Raises `CalibrationError` if the calibration does not fit, `LabelError` and `OptionError`.
        """
        if self.calibration is not None:
            self.calibration.check(self.key(model))
        if compares_sentences(model):
            self._refuse_many()
        elif may_overlap(self.words):
            tokenizing(model)
        words = flat(self.words)
        given = config or GenerateConfig()
        if given.labels not in ((), words):
            raise InvalidOptionError("labels", given.labels, "no labels: the task sets them")
        return replace(
            given,
            labels=words,
            labels_only=False,
            return_logits=False,
            label_prefix=self.label_prefix,
            label_sentence=self.label_sentence,
        )

    def _refuse_many(self) -> None:
        if self.mode == "many":
            raise TaskError(
                "Mode 'many' asks for yes or no after each label, but this model compares a text "
                "with label sentences. Use mode='one', or a language model."
            )

    def decisions(
        self, model: TextModel, prompts: Iterable[str], results: Iterable[ClassifyResult]
    ) -> Iterator[Decision]:
        """Yield one decision for each text, from the results of `request` for its `prompts`."""
        placed = answers(model, self.words, self.label_prefix, prompts, results)
        if self.mode != "many":
            for answer in placed:
                yield self._decided(answer, "", self.threshold)
            return
        threshold = 0.5 if self.threshold is None else self.threshold
        for first in placed:
            block = chain([first], islice(placed, len(self.labels) - 1))
            by_label = zip(self.labels, block, strict=True)
            parts = {label: self._decided(answer, label, None) for label, answer in by_label}
            yield gathered(parts, YES, threshold)

    def _failed(self, error: Exception) -> Decision:
        return Decision(level=self.level, error=error)

    def _decided(self, answer: Answer, question: str, threshold: float | None) -> Decision:
        if answer.error is not None:
            return self._failed(answer.error)
        try:
            return decided(
                answer,
                self.calibration,
                question=question,
                threshold=threshold,
                numeric=self.mode == "levels",
            )
        except CalibrationError as error:
            return self._failed(error)

    # ----------------------------------------------------------------------- fitting

    def fit_prior(
        self,
        model: TextModel,
        texts: Iterable[str] | None = None,
        method: PriorMethod = "content-free",
        *,
        strength: float | None = None,
        domain: str | None = None,
        config: GenerateConfig | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Return the task with the prior of the prompt without its text subtracted.

        "content-free" runs neutral texts (`core_tasks.calibration.CONTENT_FREE`), and leaves the
        task raw if the prompt does not recognise two labels that a text names. "pmi" runs the
        ``domain`` prompt, by default the part of the template after ``{text}``. "batch" runs your
        ``texts``, for example a hundred: if labels are not equally frequent, it costs accuracy.
        "mean" runs them too and takes the mean of the logarithms; it suits models of label
        sentences, for which "pmi" is refused. An earlier calibration is replaced. Texts that are
        empty or too long are skipped; raises `CalibrationError` if too few remain, or for texts
        with another method, and any other error of a text. ``progress`` is that of `classify`.
        """
        from core_tasks.fitting import prior

        fitted = prior(self, model, texts, method, strength, domain, config, progress)
        return replace(self, calibration=fitted)

    def fit(
        self,
        model: TextModel,
        texts: Iterable[str],
        gold: Gold,
        method: GoldMethod = "temperature",
        *,
        config: GenerateConfig | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Return the task with its probabilities fitted to texts with gold labels.

        The task's prior is kept and applied first; the temperature or step function replaces an
        earlier one. Texts that are empty or too long are skipped. Raises `CalibrationError` for a
        gold label that is not one of the task's, and if the rows cannot be fitted. ``progress`` is
        that of `classify`.
        """
        from core_tasks.tuning.calibrating import calibrated, method_of

        validate.one_of("method", method, ("temperature", "isotonic"))
        chosen = method_of(self, model, "", method, 1.0)
        return replace(
            self, calibration=calibrated(self, model, texts, gold, chosen, config, progress)
        )

    def calibrate(
        self,
        model: TextModel,
        texts: Sequence[str] = (),
        gold: Gold | None = None,
        *,
        prior: PriorMethod | None = None,
        method: GoldMethod = "temperature",
        strength: float | None = None,
        config: GenerateConfig | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Return the task with a prior subtracted and, with ``gold`` labels, fitted to them.

        It is `fit_prior` and `fit` together, with each prompt run once, and the strength of the
        prior is fitted with the temperature unless ``strength`` is given. The ``prior`` is by
        default the task's own, else "content-free", for a model of label sentences "mean". Raises
        like `fit_prior` and `fit`.
        """
        from core_tasks.tuning.calibrating import calibrated, method_of

        chosen = method_of(self, model, prior, method if gold is not None else "", strength)
        return replace(
            self, calibration=calibrated(self, model, texts, gold, chosen, config, progress)
        )

    # ----------------------------------------------------------------------- files

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Task:
        """Read a task that `save` wrote: `core_tasks.load_task`."""
        from core_tasks.files import load_task

        return load_task(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the task, its calibration included, as TOML; see `core_tasks.load_task`.

        It replaces a task that was saved before. Raises `OutputError` for any other existing file,
        including a task that was written by hand, and OSError.
        """
        from core_tasks.files import save_task

        save_task(self, path)
