"""Each sampling option is sent to a server, or refused by name; none is silently left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.errors import UnsupportedOptionError
from core.kit.support import refuse_options
from core.options import GenerateConfig
from core.protocols import Capability
from core.sampling_options import SAMPLING_OPTIONS, SamplingOption
from core.types import Message
from core_remote.llama_cpp import requests as llama_cpp
from core_remote.openai import requests as openai
from core_wires.contract import config_of, options_of

Body = Callable[[GenerateConfig], dict[str, Any]]
_OPENAI = openai.RequestVariant("m", plain=True)


def _llama_cpp(config: GenerateConfig) -> dict[str, Any]:
    seed = llama_cpp.own_seed(config)
    return llama_cpp.completion([1], config, tokens=1, seed=seed, probabilities=0, context=8)


BODIES: dict[str, tuple[Body, frozenset[str]]] = {
    "llama_cpp": (_llama_cpp, llama_cpp.HONOURED),
    "completion": (lambda config: _OPENAI.completion("a", config)[1], openai.HONOURED),
    "chat": (lambda config: _OPENAI.chat([Message("user", "a")], config)[1], openai.HONOURED),
}


@pytest.mark.parametrize("option", SAMPLING_OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("name", BODIES)
def test_each_option_is_sent_or_refused(name: str, option: SamplingOption) -> None:
    body, honours = BODIES[name]
    plain = GenerateConfig(temperature=0.25, seed=7)  # a greedy request needs no filters
    config = GenerateConfig(**{"temperature": 0.25, "seed": 7, option.name: option.telling})  # type: ignore[arg-type]
    assert config != plain

    def check() -> None:
        offers = {Capability.SEED}
        refuse_options(config, Capability.GENERATE, "remote", offers, honours=honours)

    if body(config) != body(plain):
        check()
    else:
        with pytest.raises(UnsupportedOptionError, match=option.name):
            check()


@pytest.mark.parametrize("option", SAMPLING_OPTIONS, ids=lambda option: option.name)
def test_core_s_api_has_each_option(option: SamplingOption) -> None:
    config = GenerateConfig(**{option.name: option.telling})  # type: ignore[arg-type]
    assert config_of(options_of(config)) == config != GenerateConfig()
