"""What may stand in a file's place, pipes, devices, holes and circles, and no place at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .opened import Opener
from .tiny_models import checkpoint, copied
from .using import outcome

FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
    *("chat_template.jinja", "model.safetensors.index.json", "a.safetensors"),
)
NOBODY = 65534
SPARSE = 64 * 2**30  # bytes that a file says it has
Stand = Callable[[Path], object]


def _socket(path: Path) -> None:
    """A name that nobody listens at any more."""
    place = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{place}/{path.name}")  # its own name may be too long
    os.close(place)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, SPARSE)


def _headed(path: Path) -> None:
    """As long, and it begins as it should."""
    path.write_bytes(b"GGUF\3\0\0\0" if path.suffix == ".gguf" else b'{"a": "')
    os.truncate(path, SPARSE)


def _circle(path: Path) -> None:
    other = path.with_name("other")
    other.symlink_to(path)
    path.symlink_to(other)


STANDS: dict[str, Stand] = {
    "fifo": os.mkfifo,
    "socket": _socket,
    "directory": Path.mkdir,
    "empty": Path.touch,
    "sparse": _sparse,
    "sparse, with a beginning": _headed,
    "unreadable": lambda path: path.touch(0),
    "circle": _circle,
    "dangling": lambda path: path.symlink_to("nothing"),
    **{
        device: partial(os.symlink, device)
        for device in ("/dev/zero", "/dev/null", "/dev/tty", "/dev/full", "/proc/self/mem")
    },
}
# A process without streams, or in a folder that is gone.
ALONE = """
import os, sys
path, backend = sys.argv[1:]
{0}
import core
with core.load_model(path, backend=backend) as model:
    assert len(list(model.generate("ab", max_tokens=2))) <= 2
    assert model.classify(["ab"])[0].error is None
"""
PROCESSES = {
    "closed streams": "for number in range(3): os.close(number)",
    "no streams": "sys.stdin = sys.stdout = sys.stderr = None",
    "no folder": "os.mkdir(place := path + '.gone'); os.chdir(place); os.rmdir(place)",
}


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """Case by case: each of `cases` of a backend."""
    place.chmod(0o755)
    opener = Opener(place, variant)
    opener.warm()
    source = checkpoint(place, "sharded") if variant == "mlx_cpu" else opener.tiny
    known = cases(variant)

    def case(number: int) -> str:
        what, file = known[number]
        if what in PROCESSES:
            return _alone(PROCESSES[what], source, variant)
        if what == "relative":
            return _without_folder(variant, place)
        if source.is_dir():
            path = copied(source, place / "model")
            _replace(path / file, what)
        else:
            path = place / "model.gguf"
            _replace(path, what)
        with as_nobody():
            return outcome(path, variant, options=opener.least)

    return case


def cases(variant: str) -> list[tuple[str, str]]:
    """What stands where, of a backend; then the processes."""
    files = FILES if variant == "mlx_cpu" else ("",)
    stands = [(what, file) for what in STANDS for file in files]
    return [*stands, *((what, "") for what in (*PROCESSES, "relative"))]


def _replace(path: Path, what: str) -> None:
    for old in (path, path.with_name("other")):
        if old.is_dir() and not old.is_symlink():
            old.rmdir()
        old.unlink(missing_ok=True) if not old.is_dir() else None
    STANDS[what](path)


def _alone(before: str, path: Path, backend: str) -> str:
    command = [sys.executable, "-c", ALONE.format(before), str(path), backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return "alone"


def _without_folder(variant: str, place: Path) -> str:
    """A relative path in a folder that is gone."""
    gone, before = place / "gone", os.open(".", os.O_RDONLY)
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        return outcome(Path("model"), variant)
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read what is unreadable; for a while this thread's process is not root."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
