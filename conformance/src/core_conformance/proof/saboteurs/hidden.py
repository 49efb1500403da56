"""Saboteurs of hidden states."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from typing import Any, Unpack

from core.errors import UnsupportedOptionError
from core.kit.base import RequestClock
from core.options import GenerateConfig, RequestOptions, resolve_request
from core.types import HiddenResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.language import NUM_LAYERS, Language
from core_conformance.reference.optional import ReferenceModel

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
        """Return the replacement for this."""
        raise NotImplementedError


@saboteur("hidden-in-doubles", "states are arrays of float64")
class HiddenInDoubles(Shows):
    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        return [
            result
            if result.states is None
            else dataclasses.replace(result, states=_doubles(result.states))
            for result in results
        ]


def _doubles(states: array[float]) -> array[float]:
    return array("d", states)


@saboteur(
    "hidden-layer-as-asked", "a result names its layers by the negative numbers that were asked for"
)
class HiddenLayerAsAsked(Shows):
    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        return [
            dataclasses.replace(result, layers=tuple(n - NUM_LAYERS - 1 for n in result.layers))
            for result in results
        ]


@saboteur("hidden-by-length", "states come in the order of their prompts' lengths")
class HiddenByLength(Shows):
    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        good = [place for place, result in enumerate(results) if result.error is None]
        order = sorted(good, key=lambda place: len(prompts[place]))
        moved = dict(zip(good, order, strict=True))
        return [results[moved.get(place, place)] for place in range(len(results))]


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


@saboteur("hidden-of-last-token", "a state is made of its prompt's last token alone")
class HiddenOfLastToken(Language):
    """Drops the keys of all positions but the last."""

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        return super().state(ids[-1:], layer)


@saboteur("hidden-without-embeddings", "layers are counted from the first one after the embeddings")
class HiddenWithoutEmbeddings(Language):
    """Shows the state after the first layer, which has read the prompt, as layer 0."""

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        return super().state(ids, layer + 1)


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


@saboteur("hidden-last-layer-only", "whichever layer is asked for, it is the last one's state")
class HiddenLastLayerOnly(Shows):
    def changed(self, prompts: list[str], results: list[HiddenResult]) -> list[HiddenResult]:
        last = ReferenceModel.hidden_states(self, prompts)
        return [
            dataclasses.replace(result, states=other.states and other.states * len(result.layers))
            for result, other in zip(results, last, strict=True)
        ]


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


@saboteur("hidden-without-last", "the last layer is refused by its number")
class HiddenWithoutLast(ReferenceModel):
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
        if NUM_LAYERS in layers:
            raise UnsupportedOptionError("layers", "reference")
        return results


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


@saboteur("deaf-hidden-states", "hidden_states does not look at cancel and timeout")
class DeafHiddenStates(ReferenceModel):
    def hidden_states(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        *,
        layers: Sequence[int] = _LAST,
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        resolve_request(config, options, "hidden_states")
        return super().hidden_states(prompts, layers=layers)


@saboteur("cancelled-hidden-raises", "a cancel ends hidden_states, and not each row")
class CancelledHiddenRaises(ReferenceModel):
    def hidden_states(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        *,
        layers: Sequence[int] = _LAST,
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        RequestClock(self.resolve_request("hidden_states", config, options)).check()
        return super().hidden_states(prompts, config, layers=layers, **options)


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
