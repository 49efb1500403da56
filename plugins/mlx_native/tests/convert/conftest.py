"""Tiny GGUF files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runtime.tests.gguf import tiny_gguf as files


@pytest.fixture(scope="session")
def tiny_gguf() -> Callable[..., files.TinyGguf]:
    """Return a function from architecture (llama, gemma3) and ``tied`` to a `TinyGguf`."""
    return files.tiny_gguf
