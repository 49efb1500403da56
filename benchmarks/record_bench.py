"""The figures of ``infer-cli bench`` for both real models on this CPU, beside those of the peers.

Our two backends in the process, mlx-lm by its own functions and llama.cpp by the loop of
llama-bench take turns, with the same number of threads; MLX has the same BLAS in front for us and
for mlx-lm. The backend mlx_lm, whose worker has no BLAS here, would take most of the time: it runs
behind the others, once::

    python benchmarks/record_bench.py [--model NAME] [--repetitions 5] [--pp 512] [--tg 128]
    python benchmarks/record_bench.py --table

Each run adds its model to benchmarks/results/bench_cpu.json, and ``--table`` writes the Markdown
beside it anew. mlx-lm has no labels, and llama-bench neither labels nor texts in batches.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from core_mlx_native.cpu.blas import ensure_blas

BLAS = ensure_blas()  # before mlx

import core  # noqa: E402
from benchmarks.classify_parts import machine  # noqa: E402
from benchmarks.classify_parts.contestants import MODELS, fetch  # noqa: E402
from core_cli.bench.cases import CHAIN, Case, Clock, Contestant, Sample, cases  # noqa: E402
from core_cli.bench.measuring import Measurement, measured  # noqa: E402
from core_cli.bench.prompts import Prompts  # noqa: E402
from core_cli.bench.tables import figure  # noqa: E402
from core_runtime.machine import usable_cores  # noqa: E402

RESULTS = Path(__file__).parent / "results"
RECORD = RESULTS / "bench_cpu.json"


class MlxLm(Contestant):
    """mlx-lm's ``stream_generate`` and ``batch_generate``, which no token ends."""

    def __init__(self, path: Path, ours: core.TextModel) -> None:
        super().__init__(path.name, ours, "mlx-lm", frozenset())
        self._generate: Any = importlib.import_module("mlx_lm.generate")
        self._sampling: Any = importlib.import_module("mlx_lm.sample_utils")
        self._net, self._tokenizer = importlib.import_module("mlx_lm").load(str(path))
        self._tokenizer.eos_token_ids = set()

    def offers(self, case: Case) -> bool:
        return case.kind != "classify"

    def sample(self, case: Case, prompts: Prompts, clock: Clock) -> Sample:
        texts = prompts.texts(case.rows, case.prompt)
        ids = [self._tokenizer.encode(text) for text in texts]
        if case.kind == "generate":
            start = clock()
            made = self._generate.batch_generate(
                self._net, self._tokenizer, ids, max_tokens=case.generated, return_token_ids=True
            )
            return Sample(sum(map(len, made.token_ids)), clock() - start)

        options: dict[str, Any] = {}
        if case.kind == "sampling":
            options["sampler"] = self._sampling.make_sampler(
                CHAIN.temperature, CHAIN.top_p, CHAIN.min_p, top_k=CHAIN.top_k
            )
            options["logits_processors"] = self._sampling.make_logits_processors(
                repetition_penalty=CHAIN.repeat_penalty
            )
        start = clock()
        stream = self._generate.stream_generate(
            self._net, self._tokenizer, ids[0], max_tokens=(case.generated or 0) + 1, **options
        )
        next(stream)
        first = clock() - start
        if case.kind in ("pp", "ttft"):
            return Sample(len(ids[0]) if case.kind == "pp" else 1, first)
        start, count = clock(), 0
        for _ in stream:
            count += 1
        return Sample(count, clock() - start)


class LlamaBench(Contestant):
    """The loop of llama-bench: tokens into ``llama_decode``, all at once, or one by one."""

    def __init__(self, path: Path, ours: core.TextModel) -> None:
        super().__init__(path.name, ours, "llama.cpp", frozenset())
        self._library: Any = importlib.import_module("llama_cpp")
        threads = {"n_threads": usable_cores(), "n_threads_batch": usable_cores()}
        sizes = {"n_ctx": 2048, "n_batch": 2048, "n_ubatch": 512}
        self._llama = self._library.Llama(
            str(path), n_gpu_layers=0, verbose=False, **threads, **sizes
        )

    def offers(self, case: Case) -> bool:
        return case.kind in ("pp", "tg", "ttft")

    def sample(self, case: Case, prompts: Prompts, clock: Clock) -> Sample:
        library, context = self._library, self._llama._ctx.ctx
        library.llama_memory_clear(library.llama_get_memory(context), True)
        text = prompts.texts(1, case.prompt)[0]
        ids = self._llama.tokenize(text.encode(), add_bos=True, special=False)
        if case.kind != "tg":
            start = clock()
            self._decode(ids)
            return Sample(len(ids) if case.kind == "pp" else 1, clock() - start)
        self._decode(ids[:1])
        start = clock()
        for number in range(case.generated):  # llama-bench draws its tokens at random as well
            self._decode([ids[number % len(ids)]])
        return Sample(case.generated, clock() - start)

    def _decode(self, ids: Sequence[int]) -> None:
        array = (ctypes.c_int32 * len(ids))(*ids)
        batch = self._library.llama_batch_get_one(array, len(ids))
        failed = self._library.llama_decode(self._llama._ctx.ctx, batch)
        assert not failed, failed
        self._library.llama_synchronize(self._llama._ctx.ctx)


def contestants(stack: ExitStack, name: str) -> list[Contestant]:
    """Ours first, each backend; then the peers."""
    files = fetch(name)
    directory, gguf = Path(files.directory), Path(files.gguf or "")
    found: list[Contestant] = []
    for backend, path in (("mlx_cpu", directory), ("llama_cpp", gguf)):
        found.append(ours(stack, backend, path, {"prefix_cache": 0}))
    return [*found, MlxLm(directory, found[0].model), LlamaBench(gguf, found[1].model)]


def ours(
    stack: ExitStack, backend: str, path: Path, options: dict[str, object] | None = None
) -> Contestant:
    """A model by one of our backends."""
    model = stack.enter_context(core.load_model(path, backend=backend, options=options or {}))
    capabilities = core.get_backend(backend).capabilities
    return Contestant(path.name, model, backend, frozenset(capabilities))


def record(name: str, args: argparse.Namespace) -> None:
    """Measure one model, and put it into the record."""
    with ExitStack() as stack:
        found: list[Measurement] = []
        for group in measured(
            contestants(stack, name),
            cases(pp=args.pp, tg=args.tg, sizes=args.batch_size),
            repetitions=args.repetitions,
            begun=lambda case: print(case, file=sys.stderr),
        ):
            found += group
    slow = cases(("pp", "tg", "sampling", "ttft"), pp=args.pp, tg=args.tg)
    with ExitStack() as stack:
        alone = ours(stack, "mlx_lm", Path(fetch(name).directory))
        for [each] in measured([alone], slow, repetitions=1, warmup=0):
            found.append(each)
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known[name] = {
        "machine": machine.describe(usable_cores()),
        "tests": [each.to_dict() for each in found],
    }
    RECORD.write_text(json.dumps(known, indent=1) + "\n")


def table() -> str:
    """The record as Markdown: a test a line, ours beside the peers."""
    names = ("mlx_cpu", "mlx_lm", "mlx-lm", "llama_cpp", "llama.cpp")
    lines = []
    for model, recorded in json.loads(RECORD.read_text()).items():
        lines += [f"### {model}", "", f"| test | unit | {' | '.join(names)} |"]
        lines.append("|---|---|" + "---:|" * len(names))
        tests: dict[str, dict[str, Any]] = {}
        for each in recorded["tests"]:
            tests.setdefault(each["test"], {})[each["backend"]] = each
        for test, found in tests.items():
            unit = next(iter(found.values()))["unit"]
            cells = [_cell(found.get(name)) for name in names]
            lines.append(f"| {test} | {unit} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(found: dict[str, Any] | None) -> str:
    if found is None or not found["samples_ns"]:
        return "-"
    if found["avg_ts"] is None:
        return f"{found['avg_ns'] / 1e9:.3f} ± {found['stddev_ns'] / 1e9:.3f}"
    return f"{figure(found['avg_ts'])} ± {figure(found['stddev_ts'])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--pp", type=int, default=512)
    parser.add_argument("--tg", type=int, default=128)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
    if not args.table:
        for name in args.model or MODELS:
            record(name, args)
    (RESULTS / "bench_cpu.md").write_text(table() + "\n")


if __name__ == "__main__":
    main()
