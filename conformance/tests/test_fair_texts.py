"""Odd tokenizers and odd refusals that are legal: the checks of texts and of ends hold nothing
against them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from core.errors import InvalidOptionError
from core.kit.operations import OPERATIONS
from core.options import GenerateConfig
from core.protocols import Backend
from core_conformance.checking.check import all_checks
from core_conformance.proof import selftest
from core_conformance.reference import Reference, vocabulary, write_model
from core_conformance.reference.optional import ReferenceModel

ASKED = (
    "chat.empty",
    "chat.too-long",
    "context.rotate-too-long",
    "errors.surrogate",
    "labels.",
    "loading.",
    "metrics.",
    "stop.",
    "streaming.max",
    "text.",
    "tokenizing.spacing",
)
Cut = Callable[[bytes], bytes]


def failures(backend: Backend, path: str) -> dict[str, str]:
    checks = [check for id, check in all_checks().items() if id.startswith(ASKED)]
    return selftest.failures(backend, path, checks)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


def without_controls(data: bytes) -> bytes:
    return re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", b"", data)


def with_single_blanks(data: bytes) -> bytes:
    return re.sub(rb" +", b" ", data)


@pytest.mark.parametrize("cut", [without_controls, with_single_blanks])
def test_a_tokenizer_that_normalises(path: str, cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = vocabulary._pieces

    def normalised(data: bytes) -> tuple[int, ...]:
        return pieces(cut(data))

    monkeypatch.setattr(vocabulary, "_pieces", normalised)
    assert failures(Reference(), path) == {}


class RefusesOddStops(ReferenceModel):
    """Says at the call that a stop can never come."""

    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: object
    ) -> GenerateConfig:
        request = super().resolve_request(operation, config, options)
        if "stop" not in OPERATIONS[operation][1].__annotations__:
            return request
        for token in request.stop_tokens:
            if token >= vocabulary.VOCAB_SIZE:
                raise InvalidOptionError("stop_tokens", token, "ids of the vocabulary")
        for stop in request.stop:
            if stop.encode(errors="replace").decode() != stop:
                raise InvalidOptionError("stop", stop, "Unicode text")
        return request


def test_stops_that_can_never_come_may_be_refused(path: str) -> None:
    kind = type("Refuses", (Reference,), {"model_class": RefusesOddStops})
    assert failures(cast("Backend", kind()), path) == {}


def test_a_context_of_the_smallest_size(tmp_path: Path) -> None:
    assert failures(Reference(), str(write_model(tmp_path / "model", 128))) == {}
