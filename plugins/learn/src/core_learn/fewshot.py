"""`FewShot`: a classifier from a few labelled texts, on a model's hidden states.

Shapes: n texts, H features, K classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Self

import numpy as np

import core
import core_tasks
from core.kit.labels import choice_confidence
from core.kit.support import without_blank
from core_learn.crossvalidation import Trial
from core_learn.errors import ForeignHeadError, LearnError, TrainingDataError
from core_learn.files import Head, load_head, save_head
from core_learn.heads import KINDS, Array, Classes, log_probabilities
from core_learn.learning import Choice, Examples, learn, nested_accuracy, unseen
from core_tasks.asking import Progress, in_blocks

PROBES = ("The quick brown fox jumps over the lazy dog.", "12 + 30", "Où est la gare ?")
"""Texts whose states identify a model; a head's file has these states."""

_BLOCK = 256  # texts a call, of a stream
_FOREIGN = 0.3  # of a probe's spread: weights of one model in two formats differ by less


class FewShot:
    """A classifier that learns labels from texts, and predicts them for others.

    ``template`` has ``{text}`` for each text; the hidden state at its last token is used.
    ``layers``: the layers to try, by default four of the upper half, or the last one if the model
    returns no other; ``kinds``: "ridge" and "lda". Layer, kind and strength are chosen by
    cross-validation on the rows of `fit` alone; the highest layer wins unless another is
    significantly better. ``head.accuracy`` is measured on rows that took no part in the choice
    (nested cross-validation). ``early_exit``: select a lower layer, above which nothing has to run,
    if the rows show that it costs no accuracy.
    """

    def __init__(
        self,
        model: Any,
        *,
        template: str = "{text}",
        layers: Sequence[int] | None = None,
        kinds: Sequence[str] = tuple(KINDS),
        early_exit: bool = False,
    ) -> None:
        if not isinstance(model, core.HiddenStates):
            raise core.UnsupportedOperationError("hidden_states", type(model).__name__, ())
        if "{text}" not in template:
            raise core.InvalidOptionError("template", template, "a text with {text} in it")
        if not kinds or not set(kinds) <= KINDS.keys():
            raise core.InvalidOptionError("kinds", kinds, f"one or more of {', '.join(KINDS)}")
        self.model: Any = model
        self.template, self.layers, self.kinds = template, layers, tuple(kinds)
        self.early_exit = early_exit
        self.trials: list[Trial] = []
        self._head: Head | None = None

    @property
    def head(self) -> Head:
        """The learned head. Raises `LearnError` before `fit`."""
        if self._head is None:
            raise LearnError("This FewShot is not fitted yet. Call fit(texts, labels).")
        return self._head

    def fit(
        self,
        texts: Sequence[str],
        y: Sequence[str],
        labels: Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from texts and their labels. ``labels``: all of them; default: sorted from ``y``.

        With ``progress``, the texts run in blocks, and ``progress(done, total)`` is called with
        counts of texts before the first one and after each.
        Raises `TrainingDataError`, and the error of a text that the model cannot read.
        """
        known, classes = _classes(texts, y, labels)
        states = self._all_states([*texts, *PROBES], progress)
        examples = _examples(states, texts, classes, _order(texts, classes))
        choice = Choice(self.kinds, self.early_exit)
        learned = learn(examples, choice)

        trial, linear = learned.trial, learned.linear
        self._head = Head(
            labels=known,
            template=self.template,
            layer=trial.layer,
            num_layers=self.model.info.num_layers,
            weights=linear.weights,
            bias=linear.bias,
            probes=states[trial.layer][len(texts) :],
            scale=trial.scale,
            kind=trial.kind,
            strength=trial.strength,
            rows=len(texts),
            accuracy=nested_accuracy(examples, choice),
        )
        self.trials = learned.trials
        return self

    def out_of_fold(
        self,
        texts: Sequence[str],
        y: Sequence[str],
        folds: Sequence[int],
        labels: Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Array:
        """Return the probabilities of each text by heads learned from the other folds: [n, K].

        ``folds[i]`` is the fold of text i. Layer, kind and strength are chosen again for each fold,
        so that the result is unbiased if equal texts are in the same fold. The model runs once;
        this object is not changed. ``progress`` is that of `fit`. Raises like `fit`.
        """
        known, classes = _classes(texts, y, labels)
        order = _order(texts, classes)
        examples = _examples(self._all_states(texts, progress), texts, classes, order)
        place = np.array(folds)[order]
        left_out = [np.flatnonzero(place == fold) for fold in np.unique(place)]
        probabilities = np.empty((len(texts), len(known)))
        probabilities[order] = unseen(examples, Choice(self.kinds, self.early_exit), left_out)
        return probabilities

    def predict_proba(self, texts: Sequence[str]) -> Array:
        """Return the probabilities of ``head.labels`` for each text: [n, K].

        Raises the error of the first text that the model cannot read.
        """
        results = self._results(texts, (self.head.layer,))
        return _probabilities(self.head, self._rows(results)[:, 0])

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the likeliest label of each text."""
        return [self.head.labels[place] for place in self.predict_proba(texts).argmax(axis=1)]

    def classify(
        self,
        texts: Sequence[str],
        config: core.GenerateConfig | None = None,
        *,
        allow_blank: bool = False,
    ) -> list[core_tasks.Decision]:
        """Return a decision of level "head" for each text; a failed one has an ``error``.

        A blank text fails unless ``allow_blank``. ``config`` is for ``cancel`` and ``timeout``.
        ``logprobs`` and ``label_mass`` are not set: a head does not read labels.
        """

        def ask(filled: Sequence[str]) -> list[core_tasks.Decision]:
            results = self._results(filled, (self.head.layer,), config)
            sound = [result for result in results if result.error is None]
            likely = iter(_probabilities(self.head, self._rows(sound)[:, 0]) if sound else ())
            return [
                _failed(result.error) if result.error else self._decision(next(likely).tolist())
                for result in results
            ]

        decide = ask if allow_blank else without_blank(ask, _failed)
        return decide(_checked(texts))

    def classify_iter(
        self,
        texts: Iterable[str],
        config: core.GenerateConfig | None = None,
        *,
        allow_blank: bool = False,
    ) -> Iterator[core_tasks.Decision]:
        """Yield the decisions of `classify` for any iterable of texts, in constant memory."""
        if isinstance(texts, str):
            raise TypeError("FewShot expects a sequence of texts. Wrap a single one in a list.")
        return self._in_blocks(iter(texts), config, allow_blank)

    def _in_blocks(
        self, texts: Iterator[str], config: core.GenerateConfig | None, allow_blank: bool
    ) -> Iterator[core_tasks.Decision]:
        while block := [*islice(texts, _BLOCK)]:
            yield from self.classify(block, config, allow_blank=allow_blank)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the head to a safetensors file; see `load`.

        Replaces an existing head. Raises `core.OutputError` for any other existing file, and
        OSError.
        """
        save_head(self.head, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any) -> Self:
        """Read a head that `save` wrote, for the same model in any format and on any backend.

        Raises `HeadFileError`, and `ForeignHeadError` for another model, whose states of a few
        fixed texts differ from those at training.
        """
        return cls.with_head(load_head(path), model, os.fspath(path))

    @classmethod
    def with_head(cls, head: Head, model: Any, name: str = "the head") -> Self:
        """Return a fitted `FewShot` with this head. Raises `ForeignHeadError` for another model."""
        few = cls(model, template=head.template, layers=(head.layer,))
        few._head = head
        few._check_model(name)
        return few

    # ------------------------------------------------------------ states

    def _all_states(
        self, texts: Sequence[str], progress: Progress | None = None
    ) -> dict[int, Array]:
        """Return the states of texts at every layer to try, [n, H] each."""
        last = self.model.info.num_layers
        upper = sorted({(last + 1) // 2, 2 * last // 3, 5 * last // 6, last})
        layers = upper if self.layers is None else self.layers
        try:
            results = self._results(texts, layers, progress=progress)
        except core.UnsupportedOptionError:
            if self.layers is not None:
                raise
            results = self._results(texts, (last,), progress=progress)
        rows = self._rows(results)
        return {layer: rows[:, place] for place, layer in enumerate(results[0].layers)}

    def _results(
        self,
        texts: Sequence[str],
        layers: Sequence[int],
        config: core.GenerateConfig | None = None,
        progress: Progress | None = None,
    ) -> list[core.HiddenResult]:
        def run(block: Sequence[str]) -> list[core.HiddenResult]:
            results = self.model.hidden_states(block, config, layers=layers)
            return [_sound(result) for result in results]

        prompts = [self.template.replace("{text}", text) for text in _checked(texts)]
        return run(prompts) if progress is None else in_blocks(run, prompts, progress)

    def _rows(self, results: Sequence[core.HiddenResult]) -> Array:
        """Return states as one array: [n, layers, H]. Raises the error of the first failed text."""
        for place, result in enumerate(results):
            if result.error is not None:
                result.error.add_note(f"This is the error of text {place}.")
                raise result.error
        layers = len(results[0].layers) if results else 1
        flat = [np.frombuffer(result.states or b"", np.float32) for result in results]
        return np.array(flat, np.float64).reshape(len(results), layers, self.model.info.hidden_size)

    def _decision(self, shares: list[float]) -> core_tasks.Decision:
        labels, (second, first) = self.head.labels, sorted(shares)[-2:]
        best = labels[shares.index(first)]
        return core_tasks.Decision(
            label=best,
            labels=(best,),
            probabilities=dict(zip(labels, shares, strict=True)),
            level="head",
            confidence=choice_confidence(shares),
            margin=first - second,
        )

    def _check_model(self, path: str) -> None:
        head, info = self.head, self.model.info
        advice = "Learn a head on this model, or load the model that this one was learned on."
        if (info.num_layers, info.hidden_size) != (head.num_layers, len(head.weights)):
            raise ForeignHeadError(
                f"{path!r} was learned on a model with {head.num_layers} layers of size "
                f"{len(head.weights)}; this model has {info.num_layers} of size "
                f"{info.hidden_size}. {advice}"
            )

        # This model's states of the texts whose states the head holds.
        probes = self._rows(self._results(PROBES, (head.layer,)))[:, 0]  # [probes, hidden]
        spread = np.linalg.norm(head.probes - head.probes.mean(axis=0))
        apart = float(np.linalg.norm(probes - head.probes) / spread) if spread else np.inf
        if not apart <= _FOREIGN:
            raise ForeignHeadError(
                f"{path!r} was learned on another model, or on other weights of it: the states of "
                f"{len(PROBES)} texts differ by {apart:.0%} of their spread, and {_FOREIGN:.0%} "
                f"are allowed. {advice}"
            )


def _failed(error: Exception) -> core_tasks.Decision:
    return core_tasks.Decision(level="head", error=error)


def _sound(result: core.HiddenResult) -> core.HiddenResult:
    """Return the result, or an error if its states are not finite."""
    if result.states is None or np.isfinite(np.frombuffer(result.states, np.float32)).all():
        return result
    return core.HiddenResult(
        error=core.InvalidModelError(
            "The hidden states of this text are NaN or infinite: the model's weights are broken, "
            "or overflow the dtype. Load the model in float32, or download it again."
        )
    )


def _order(texts: Sequence[str], classes: Classes) -> Classes:
    """Return the rows sorted by text, so that the result does not depend on the input order."""
    return np.array(sorted(range(len(texts)), key=lambda row: (texts[row], classes[row])))


def _examples(
    states: Mapping[int, Array], texts: Sequence[str], classes: Classes, order: Classes
) -> Examples:
    """Return the rows in this order; states of further texts are omitted."""
    rows = {layer: array[order] for layer, array in states.items()}
    count = int(classes.max()) + 1  # each class has a row
    return Examples.of(rows, [texts[row] for row in order], classes[order], count)


def _probabilities(head: Head, states: Array) -> Array:
    """Return the probabilities that a head computes from states: [n, K]."""
    probabilities: Array = np.exp(log_probabilities(states @ head.weights + head.bias, head.scale))
    return probabilities


def _checked(texts: object) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TypeError("FewShot expects a sequence of texts. Wrap a single one in a list.")
    rows = list(texts)
    wrong = next((place for place, text in enumerate(rows) if not isinstance(text, str)), None)
    if wrong is not None:
        raise TypeError(f"Text {wrong} is not a string, but {type(rows[wrong]).__name__}.")
    return rows


def _classes(
    texts: Sequence[str], y: Sequence[str], labels: Sequence[str] | None
) -> tuple[tuple[str, ...], Classes]:
    """Return the labels, and the number of each row's. Raises `TrainingDataError`, TypeError."""
    rows, given = _checked(texts), list[object](y)
    if len(rows) != len(given):
        raise TrainingDataError(f"{len(rows)} texts and {len(given)} labels: give as many.")
    for place, label in enumerate(given):
        if not isinstance(label, str) or not label:
            raise TrainingDataError(
                f"The label of text {place} is {label!r}: expected a non-empty string."
            )

    # Every label has an example, and there are at least two labels.
    own = {label for label in given if isinstance(label, str)}
    known = tuple(sorted(own) if labels is None else dict.fromkeys(labels))
    if strange := sorted(own - set(known)):
        raise TrainingDataError(f"Texts have labels that are missing in labels: {strange}.")
    if missing := [label for label in known if label not in own]:
        raise TrainingDataError(
            f"No text has the label {missing[0]!r}. Add one, or remove the label."
        )
    if len(known) < 2:
        raise TrainingDataError(
            f"At least two distinct labels are required, found {len(known)} (texts: {len(rows)})."
        )
    numbers = {label: number for number, label in enumerate(known)}
    return known, np.array([numbers[str(label)] for label in given], np.intp)
