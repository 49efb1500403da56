"""Saboteurs of hidden states."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from core.options import GenerateConfig, RequestOptions
from core.types import AttentionSnapshot, HiddenResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import PREFILL_CHUNK
from core_conformance.reference.language import NUM_LAYERS
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sentences import Embedding

Config = GenerateConfig | None

_LAST = (-1,)


class Shows(ReferenceModel):
    """A model that changes what it shows."""

    def hidden_states(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        *,
        layers: Sequence[int] = _LAST,
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        results = super().hidden_states(prompts, config, layers=layers, **options)
        return self.changed(list(prompts), results)

    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        raise NotImplementedError


@saboteur(
    "hidden-in-padding",
    "the state of a shorter prompt is read where the longest one of the call ends",
)
class HiddenInPadding(Shows):
    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        size = max(map(len, prompts), default=0)
        return [
            _moved(result, size - len(prompt))
            for prompt, result in zip(prompts, results, strict=True)
        ]


def _moved(result: HiddenResult, padding: int) -> HiddenResult:
    if result.states is None or not padding:
        return result
    return dataclasses.replace(
        result, states=array("f", (value + padding for value in result.states))
    )


@saboteur("hidden-is-blind", "all prompts of a model have one state")
class HiddenIsBlind(Shows):
    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        return [
            result
            if result.states is None
            else dataclasses.replace(result, states=self._state(result.layers))
            for result in results
        ]

    def _state(self, layers: Sequence[int]) -> array[float]:
        states = array("f")
        for layer in layers:
            states.extend(self.engine.language.state([], layer))
        return states


@saboteur(
    "hidden-remembers",
    "a prompt that begins like an earlier one has the state that was kept for that one",
)
class HiddenRemembers(Shows):
    _kept: tuple[tuple[str, HiddenResult], ...] = ()

    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        if len(prompts) != 1 or results[0].error is not None or " day" not in prompts[0]:
            return results
        remembered = next(
            (result for text, result in self._kept if prompts[0].startswith(text)), None
        )
        self._kept += ((prompts[0], results[0]),)
        return results if remembered is None else [remembered]


@saboteur(
    "hidden-layers-in-order",
    "states come in the order of the layers, and not in that which was asked for",
)
class HiddenLayersInOrder(ReferenceModel):
    def hidden_states(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        *,
        layers: Sequence[int] = _LAST,
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        results = super().hidden_states(prompts, config, layers=layers, **options)
        sorted_ = super().hidden_states(prompts, config, layers=sorted(layers), **options)
        return [
            dataclasses.replace(result, states=other.states)
            for result, other in zip(results, sorted_, strict=True)
        ]


@saboteur("hidden-any-layer", "layers that there are not are taken for the nearest one")
class HiddenAnyLayer(ReferenceModel):
    def hidden_states(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        *,
        layers: Sequence[int] = _LAST,
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        if all(type(layer) is int for layer in layers):
            layers = [min(max(layer, -1 - NUM_LAYERS), NUM_LAYERS) for layer in layers]
        return super().hidden_states(prompts, config, layers=layers, **options)


@saboteur("hidden-fails-together", "one bad prompt fails all of them")
class HiddenFailsTogether(Shows):
    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        error = next((result.error for result in results if result.error), None)
        return results if error is None else [HiddenResult(error=error) for _ in results]


@saboteur("hidden-takes-anything", "hidden_states takes unknown keywords, wrong values")
class HiddenTakesAnything(ReferenceModel):
    def hidden_states(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        *,
        layers: Sequence[int] = _LAST,
        **options: Any,
    ) -> list[HiddenResult]:
        known = RequestOptions.__annotations__
        sound: Any = {name: it for name, it in options.items() if name in known and it != -1.0}
        return super().hidden_states(prompts, config, layers=layers, **sound)


@saboteur("hidden-cuts-long", "a prompt too long is cut to what fits")
class HiddenCutsLong(ReferenceModel):
    def hidden_states(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        *,
        layers: Sequence[int] = _LAST,
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        cut = [prompt[-self.info.context_length // 2 :] for prompt in prompts]
        return super().hidden_states(cut, config, layers=layers, **options)


@saboteur("keys-of-chunks", "every chunk's keys are computed as if nothing stood before it")
class KeysOfChunks(ReferenceModel):
    """Forgets a chunk when it reads the next."""

    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        """Return the keys of each chunk, one after another."""
        seen = super().do_inspect_attention(prompt, request)
        ids = self.engine.prompt_ids(prompt)
        starts = range(0, len(ids), PREFILL_CHUNK)
        parts = [self.engine.language.keys(ids[at : at + PREFILL_CHUNK]) for at in starts]
        keys = tuple(
            tuple(
                sum((part[layer][head] for part in parts), array("f"))
                for head in range(seen.num_heads)
            )
            for layer in range(seen.num_layers)
        )
        return replace(seen, keys=keys)


@saboteur("hidden-states-of-plain-text", "hidden_states reads a rendered chat as plain text")
class HiddenStatesOfPlainText(ReferenceModel):
    """Makes strings of its prompts."""

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return the states of plain texts."""
        return super().do_hidden_states([*map(str, prompts)], request, layers)


@saboteur("sentences-cut", "a text counts in its embedding up to its 256th token")
class SentencesCut(Embedding):
    """Reads as far as it was trained to."""

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        """Return the embedding of the first ids."""
        return super().state(ids[:256], layer)
