"""This project's backends, through the public API."""

from __future__ import annotations

import math
from collections.abc import Sequence

import core
from benchmarks.encoder_parts.subject import Rows, Spec
from benchmarks.line_process import UnavailableError
from core.kit.support import compares_sentences


class Core:
    """Options: ``backend``, and ``load``, the backend's own options."""

    def __init__(self, spec: Spec) -> None:
        try:
            self._model = core.load_model(
                spec.model, backend=spec.options["backend"], options=spec.options.get("load", {})
            )
        except core.CoreError as error:
            raise UnavailableError(str(error)) from error

    def about(self) -> str:
        """Return the values chosen at load."""
        choices = self._model.choices() if isinstance(self._model, core.Explaining) else ()
        return ", ".join(f"{choice.name} {choice.value}" for choice in choices)

    def label(self, texts: Sequence[str], labels: Sequence[str], question: str) -> Rows:
        """Classify texts by a label sentence, or prompts made with a template."""
        if "{label}" in question:
            results = self._model.classify(texts, labels=tuple(labels), label_sentence=question)
        else:
            prompts = [question.format(text=text) for text in texts]
            results = self._model.classify(prompts, labels=tuple(labels))
        rows = []
        for result in results:
            result.raise_for_error()
            shares = result.probabilities or {}
            scores = result.logprobs or {label: math.log(shares[label]) for label in labels}
            rows.append([scores[label] for label in labels])
        return rows

    def embed(self, texts: Sequence[str]) -> Rows:
        """Return the hidden states of an encoder, of which there is one a text."""
        if not compares_sentences(self._model):
            return []
        assert isinstance(self._model, core.HiddenStates)
        results = self._model.hidden_states(texts)
        return [[*(result.raise_for_error().states or ())] for result in results]
