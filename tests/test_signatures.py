"""The generated modules repeat the signatures of the protocols."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import core
from core.aio.operations import AsyncOperations
from core.kit import operations
from tools import signatures


@pytest.mark.parametrize("path", signatures.FILES, ids=lambda path: path.parent.name)
def test_generated_modules_are_up_to_date(path: Path) -> None:
    assert path.read_text("utf-8") == signatures.FILES[path](), "run tools/signatures.py --write"


@pytest.mark.parametrize("operation", list(signatures.operations()), ids=lambda item: item.name)
def test_operations_have_the_signature_of_their_protocol(
    operation: signatures.Operation,
) -> None:
    protocol = getattr(core, operation.protocol)
    expected = inspect.signature(getattr(protocol, operation.name)).parameters
    asynchronous = inspect.signature(getattr(AsyncOperations, operation.name)).parameters
    assert list(asynchronous) == list(expected)
    if operation.takes_config:
        base = getattr(operations, f"{operation.protocol}Operations")
        assert inspect.signature(getattr(base, operation.name)).parameters == expected
