"""Options that a backend on the runtime does not honour are refused by name, never dropped."""

from __future__ import annotations

import pytest

import core
from core.protocols import Capability
from core_runtime.model import InProcessModel

DOES = frozenset({Capability.GENERATE, Capability.CLASSIFY, Capability.SCORING})


class WithoutTopK(InProcessModel):
    """A model whose sampler has no top_k."""

    honours = frozenset({"temperature", "top_p"})


@pytest.fixture
def model() -> InProcessModel:
    """Nothing is computed, so nothing was loaded."""
    return WithoutTopK("mine", None, DOES)  # type: ignore[arg-type]


def test_an_option_that_it_does_not_honour_is_refused(model: InProcessModel) -> None:
    with pytest.raises(core.UnsupportedOptionError, match="top_k"):
        model.checked_generate(Capability.GENERATE, None, {"top_k": 2})
    with pytest.raises(core.UnsupportedOptionError, match="top_k"):
        model.checked_classify(Capability.CLASSIFY, core.GenerateConfig(top_k=2), {})


def test_at_its_default_and_where_it_does_not_apply_it_passes(model: InProcessModel) -> None:
    model.checked_generate(Capability.GENERATE, None, {"top_k": 0, "top_p": 0.5})
    model.checked_request(Capability.SCORING, core.GenerateConfig(top_k=2), {})
