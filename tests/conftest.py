"""Fixtures: other installed plugins, and a user with lesser rights."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.protocols import Capability

ROOT = Path(__file__).parents[1]
PLUGINS = Path(__file__).parent / "data" / "plugins"


class LocalBackend:
    """A backend to be registered by hand."""

    protocol = 2
    capabilities = frozenset({Capability.SCORING})
    formats = frozenset({"safetensors"})

    def __init__(self, name: str) -> None:
        self.name = name

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def load_model(self, path: object, config: object) -> object: ...


@pytest.fixture
def local_backend() -> Any:
    """Makes a backend of this name that can be registered, and changed."""
    return LocalBackend


@pytest.fixture
def use_plugins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make exactly these folders of tests/data/plugins, in this order, what is installed."""
    library = [p for p in sys.path if not p.endswith(("site-packages", "dist-packages"))]

    def use(*folders: str | Path) -> None:
        chosen = [str(PLUGINS / folder) for folder in folders]
        monkeypatch.setattr(
            sys, "path", [*chosen, *(p for p in library if p not in ("", str(ROOT)))]
        )
        importlib.invalidate_caches()

    return use


@pytest.fixture
def public_dir() -> Iterator[Path]:
    """An empty directory that every user may enter, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def as_nobody() -> Callable[[Callable[[], object]], str]:
    """Run something with lesser rights in a child process; what it returned or raised, as text.

    The child is a fork: an interpreter of its own might not be readable to that user.
    """

    def run(call: Callable[[], object]) -> str:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            child = os.fork()
        if child == 0:
            _answer(call, write)
        os.close(write)
        with os.fdopen(read) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        return answer

    return run


def _answer(call: Callable[[], object], pipe: int) -> None:
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        text = repr(call())
    except BaseException as error:  # noqa: BLE001 - it must not get out of the child
        text = f"{type(error).__name__}: {error}"
    os.write(pipe, text.encode())
    os._exit(0)
