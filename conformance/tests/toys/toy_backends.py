"""Backends for the framework's own tests: each does something of its own at the word "second"."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from core.errors import UnsupportedModelError
from core.kit.base import TextModelBase
from core.kit.support import unsupported
from core.protocols import Capability
from core.types import ModelInfo, Token


class Toy:
    """Says what it is told."""

    name = "toy"
    protocol = 2
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.GENERATE})
    formats = frozenset({"safetensors"})

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def load_model(self, path: Any, config: Any) -> ToyModel:
        if config.options.get("refuse") == 1:
            raise UnsupportedModelError("Asked to refuse.")
        return ToyModel(self)

    def said(self, word: str) -> str:
        return self.at_second() if word == "second" else word

    def at_second(self) -> str:
        return "second"


class ToyModel(TextModelBase):
    """See `Toy`."""

    model_type = "toy"
    info = ModelInfo("toy", 1, 1, 1, 0, 0, 128, 0.0)

    def __init__(self, backend: Toy) -> None:
        super().__init__(backend.name)
        self._toy = backend

    def generate(self, prompt: str, config: Any = None, /, **options: Any) -> Any:
        def stream() -> Iterator[Token]:
            yield Token(0, self._toy.said(prompt))

        return stream()

    def classify(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        if isinstance(self._toy, Answers):
            return []
        raise unsupported(Capability.CLASSIFY, self._toy.name)


class NothingModel(ToyModel):
    """Refuses all."""

    def generate(self, prompt: str, config: Any = None, /, **options: Any) -> Any:
        raise unsupported(Capability.GENERATE, self._toy.name)


class Wrong(Toy):
    name = "toy_wrong"

    def at_second(self) -> str:
        return "nonsense"


class Small(Toy):
    """Its model has a context that is too short for the suite."""

    name = "toy_small"

    def load_model(self, path: Any, config: Any) -> ToyModel:
        model = super().load_model(path, config)
        model.info = ModelInfo("toy", 1, 1, 1, 0, 0, config.context_len or 127, 0.0)
        return model


class Nothing(Toy):
    """Offers no operation."""

    name = "toy_nothing"
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    def load_model(self, path: Any, config: Any) -> ToyModel:
        return NothingModel(self)


class Raises(Toy):
    name = "toy_raises"

    def at_second(self) -> str:
        raise SystemExit("a stray exit")


class Hangs(Toy):
    name = "toy_hangs"

    def at_second(self) -> str:
        os.write(2, b"hanging\n")
        threading.Event().wait()
        return ""


class Dies(Toy):
    name = "toy_dies"

    def at_second(self) -> str:
        os.kill(os.getpid(), signal.SIGSEGV)
        return ""


class Exits(Toy):
    name = "toy_exits"

    def at_second(self) -> str:
        os._exit(0)


class Prints(Toy):
    name = "toy_prints"

    def at_second(self) -> str:
        sys.stdout.write("chatter of Python\n")
        os.write(1, b"chatter of C\n")
        return "second"


class Threads(Toy):
    name = "toy_threads"

    def at_second(self) -> str:
        threading.Thread(target=threading.Event().wait, name="stray", daemon=False).start()
        return "second"


class Spawns(Toy):
    name = "toy_spawns"

    def load_model(self, path: Any, config: Any) -> ToyModel:
        self._path = path
        return super().load_model(path, config)

    def at_second(self) -> str:
        process = subprocess.Popen(["sleep", "300"])
        with open(self._path, "w", encoding="utf-8") as file:
            file.write(str(process.pid))
        return "second"


class Refuses(Toy):
    name = "toy_refuses"

    def load_model(self, path: Any, config: Any) -> ToyModel:
        raise UnsupportedModelError("No code for this model. Take another.")


class Breaks(Toy):
    name = "toy_breaks"

    def load_model(self, path: Any, config: Any) -> ToyModel:
        raise KeyError("weights")


class DiesLoading(Toy):
    name = "toy_dies_loading"

    def load_model(self, path: Any, config: Any) -> ToyModel:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError


class HangsLoading(Toy):
    name = "toy_hangs_loading"

    def load_model(self, path: Any, config: Any) -> ToyModel:
        threading.Event().wait()
        raise AssertionError


class Absent(Toy):
    name = "toy_absent"

    def available(self) -> bool:
        return False

    def unavailable_reason(self) -> str | None:
        return "the moon is not full"


class Answers(Toy):
    """Does not declare ``classify``, and answers all the same."""

    name = "toy_answers"


class Markup(Toy):
    """Says what a browser would run."""

    name = "toy_markup"

    def at_second(self) -> str:
        return "<script>alert(1)</script>"
