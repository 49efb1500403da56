"""Count the frames and files from a call to its first product: ``python -m tools.way MODEL...``.

A directory is run by mlx_native, a GGUF file by llama_cpp. A table shows how many frames and files
of this repository one prompt passes from the public call to the first matrix product; the
frames follow, and the files in the order in which they are entered.

Frames are counted on the thread that computes the product, and on the caller's thread when it
hands the job on (`OwnerThread.submit` or `post`). Files: all that are entered by
any thread, the tokenizer's among them. Both are counted in a second call, for which everything is
imported. A list comprehension counts as a frame in Python 3.11, but not from 3.12 on.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import core

PACKAGES = ("core", "core_runtime", "core_mlx_native", "core_llama_cpp")
PRODUCTS = {
    ("core_mlx_native.network.layers", "product"),
    ("core_mlx_native.cpu.product", "into"),  # of short passes, in numpy
    ("core_llama_cpp.session", "decode"),
}
HANDED_ON = {("core_runtime.owner", "submit"), ("core_runtime.owner", "post")}
PROMPT = "ab no ab"

Call = Callable[[Any], object]
CALLS: dict[str, Call] = {
    "classify": lambda model: model.classify([PROMPT], labels=["a", "b"]),
    "score": lambda model: model.score([PROMPT], [" a"]),
    "generate": lambda model: list(model.generate(PROMPT, max_tokens=1, temperature=0.0)),
}


@dataclass(slots=True)
class Way:
    """The path of one call: modules in the order of their first function, and frames."""

    files: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)


class Recorder:
    """A profile function for all threads, which writes down one call while it is watched."""

    def __init__(self) -> None:
        self._way: Way | None = None
        self._caller = 0
        self._handed_on: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        way, place = self._way, _place(frame)
        if way is None or way.frames or event != "call" or place is None:
            return
        if place[0] not in way.files:
            way.files.append(place[0])
        here = threading.get_ident()
        if place in HANDED_ON and here == self._caller:
            self._handed_on = _stack(frame)
        if place in PRODUCTS:
            before = [] if here == self._caller else self._handed_on
            way.frames = before + _stack(frame)

    @contextmanager
    def watching(self) -> Iterator[Way]:
        """The way of the one call that is made within."""
        self._way, self._caller, self._handed_on = Way(), threading.get_ident(), []
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield self._way
        finally:
            sys.setprofile(before)
            self._way = None


def ways(backend: str, path: Path, operations: tuple[str, ...] = tuple(CALLS)) -> dict[str, Way]:
    """The way of each operation through a model that this backend loads."""
    recorder = Recorder()
    recorded = {}
    before = threading.getprofile()
    threading.setprofile(recorder)  # the threads of the model are started by its load
    try:
        with core.load_model(path, backend=backend) as model:
            for operation in operations:
                CALLS[operation](model)
                model._owner.run(lambda: None)  # type: ignore[attr-defined]  # what it left is done
                with recorder.watching() as recorded[operation]:
                    CALLS[operation](model)
    finally:
        threading.setprofile(before)
    return recorded


def _place(frame: FrameType) -> tuple[str, str] | None:
    """Return module and function in this repository's packages; generated methods have none."""
    code, module = frame.f_code, str(frame.f_globals.get("__name__"))
    if module.partition(".")[0] not in PACKAGES or code.co_filename.startswith("<"):
        return None
    return module, code.co_name


def _stack(frame: FrameType | None) -> list[str]:
    """The frames of one thread, outermost first."""
    frames: list[str] = []
    while frame is not None:
        place = _place(frame)
        if place is not None:
            frames.append(f"{place[0]} {frame.f_code.co_qualname}")
        frame = frame.f_back
    return frames[::-1]


def main() -> None:
    """Print a table, and then each way."""
    parser = argparse.ArgumentParser(prog="python -m tools.way")
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    every: dict[str, Way] = {}
    for path in parser.parse_args().models:
        backend, calls = (
            ("llama_cpp", ("classify",)) if path.is_file() else ("mlx_cpu", tuple(CALLS))
        )
        every |= {f"{backend} {name}": way for name, way in ways(backend, path, calls).items()}
    print(f"{'':24}{'frames':>8}{'files':>8}")
    for name, way in every.items():
        print(f"{name:24}{len(way.frames):8}{len(way.files):8}")
    for name, way in every.items():
        print(f"\n{name}: frames", *way.frames, sep="\n  ")
        print(f"{name}: files", *way.files, sep="\n  ")


if __name__ == "__main__":
    main()
