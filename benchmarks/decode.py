"""Measure the decode engine, compared with mlx-lm, llama.cpp and itself. Prints JSON.

SmolLM2-135M on the CPU, greedy, one process, with the same number of threads, in float32 through
MLX, both libraries with the same BLAS; llama.cpp has the same model as GGUF, in float32 and
rounded. They take turns, and medians are compared. What is not installed is left out::

    pip install mlx-lm==0.32.2 llama-cpp-python
    python benchmarks/decode.py [--runs 5] [--tokens 64] [--only stream batch refill first_token]
        [--rows 8] [--backend mlx_cpu] [--openvino float32 bfloat16 int8] [--model DIR]
        [--gguf FILE] [--kinds F32 Q8_0] [--json FILE]

``stream``: tokens/s of one stream, against ``mlx_lm.stream_generate`` and ``llama_cpp.Llama``.
``batch``: of 8 prompts at once, against ``mlx_lm.batch_generate``, and ``llama_decode`` with a
sequence for each prompt. ``python -m benchmarks.classify_parts.report FILE``
prints the two as a table. ``refill``: 64 requests of 4 to 128 tokens through 8 slots,
against the same engine when it admits nothing before all rows have ended. ``first_token``: seconds
to the first token of a short request that arrives while a prompt of 2,000 tokens is prefilled,
against the same without chunks.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from core_mlx_native.cpu.blas import ensure_blas

BLAS = ensure_blas()  # before mlx

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

import core  # noqa: E402
from benchmarks import machine  # noqa: E402
from benchmarks.classify_parts.contestants import fetch  # noqa: E402
from benchmarks.classify_parts.quantised import KINDS, quantised  # noqa: E402
from core_mlx_native.model import MlxModel  # noqa: E402
from core_runtime.machine import usable_cores  # noqa: E402

MARKS = {"stream": 1.0, "batch": 1.1, "refill": 1.4, "first_token": 1 / 3}
TOKENS = 64
PROMPTS = [
    "The central bank raised interest rates on Thursday, and the stock market",
    "The home team won the final after extra time, and their captain",
    "Astronomers found a planet that orbits two stars at a distance of",
    "The company presented a new processor that uses half the power of",
    "Once upon a time there was a lighthouse keeper who could not",
    "To bake a loaf of bread you need flour, water, salt and",
    "The capital of Australia is Canberra, which was chosen because",
    "Dear Sir or Madam, I am writing to you because the",
]

Measured = dict[str, float]
Call = Callable[[], int]  # how many tokens it made
Calls = tuple[Call, Call]  # a stream, and a batch


def load(path: Path, backend: str = "mlx_cpu", **options: Any) -> MlxModel:
    """Return our model without end tokens: every row generates as many tokens as requested."""
    model = core.load_model(path, backend=backend, **options)
    assert isinstance(model, MlxModel)
    object.__setattr__(model._loaded, "stop_ids", frozenset())
    return model


def timed(call: Call) -> Measured:
    """Tokens per second over the whole call, CPU time, and the most memory that MLX arrays held."""
    gc.collect()
    mx.reset_peak_memory()
    started, worked = time.perf_counter(), time.process_time()
    tokens = call()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    return {
        "tokens_per_second": tokens / seconds,
        "cpu_ms_per_token": 1000 * cpu_seconds / tokens,
        "peak_memory_bytes": mx.get_peak_memory(),
    }


def compare(calls: dict[str, Call], runs: int) -> dict[str, Any]:
    """Return medians of interleaved runs; ``ratio`` is the first one's speed over the second's."""
    samples: dict[str, list[Measured]] = {name: [] for name in calls}
    for number in range(runs + 1):
        for name, call in calls.items():
            measured = timed(call)
            if number:  # the first round touches everything once
                samples[name].append(measured)
    report: dict[str, Any] = {name: median(values) for name, values in samples.items()}
    first, second, *_ = (report[name]["tokens_per_second"] for name in calls)
    return {**report, "ratio": round(first / second, 3)}


def median(values: Sequence[Measured]) -> Measured:
    """Return the median of each number."""
    names = values[0]
    return {name: round(statistics.median(value[name] for value in values), 3) for name in names}


def prompts(rows: int) -> list[str]:
    """Return this many distinct prompts."""
    more = [f"{row}. {PROMPTS[row % len(PROMPTS)]}" for row in range(len(PROMPTS), rows)]
    return [*PROMPTS[:rows], *more]


def mlx_lm_calls(path: Path, count: int, rows: Sequence[str] = PROMPTS) -> Calls:
    """mlx-lm's stream and batch, of ``count`` tokens a prompt."""
    generate: Any = importlib.import_module("mlx_lm.generate")
    model, tokenizer = importlib.import_module("mlx_lm").load(str(path))
    tokenizer.eos_token_ids = set()
    ids = [tokenizer.encode(prompt) for prompt in rows]

    def stream() -> int:
        stream = generate.stream_generate(model, tokenizer, PROMPTS[0], max_tokens=count)
        return sum(1 for _ in stream)

    def batch() -> int:
        results = generate.batch_generate(
            model, tokenizer, ids, max_tokens=count, return_token_ids=True
        )
        return sum(map(len, results.token_ids))

    return stream, batch


def own_calls(model: Any, count: int, rows: Sequence[str] = PROMPTS) -> Calls:
    """Our stream and batch; llama.cpp's end tokens end a row, and are not counted."""

    def stream() -> int:
        return sum(1 for _ in model.generate(PROMPTS[0], max_tokens=count))

    def batch() -> int:
        return sum(len(row.tokens) for row in model.batch_generate(rows, max_tokens=count))

    return stream, batch


def llama_calls(path: Path, count: int, rows: Sequence[str] = PROMPTS) -> Calls:
    """Return the stream of ``llama_cpp.Llama``, and a batch of llama.cpp's own functions."""
    library: Any = importlib.import_module("llama_cpp")
    threads = {"n_threads": usable_cores(), "n_threads_batch": usable_cores()}
    model = library.Llama(str(path), n_ctx=512, n_gpu_layers=0, verbose=False, **threads)

    def encoded(prompt: str) -> list[int]:
        return list(model.tokenize(prompt.encode(), add_bos=True, special=False))

    def stream() -> int:
        return sum(1 for _ in islice(model.generate(encoded(PROMPTS[0]), temp=0.0), count))

    prompts_ids = [encoded(row) for row in rows]
    batch = LlamaBatch(library, model._model.model, len(rows), model.n_vocab())
    return stream, lambda: batch.generate(prompts_ids, count)


class LlamaBatch:
    """A context of llama.cpp in which several sequences decode in one pass, greedily."""

    def __init__(self, library: Any, model: Any, sequences: int, vocab_size: int) -> None:
        params = library.llama_context_default_params()
        params.n_seq_max, params.n_ctx = sequences, sequences * 512
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = usable_cores()
        params.no_perf = True
        self._library, self._vocab_size = library, vocab_size
        self._context = library.llama_init_from_model(model, params)
        assert self._context, "llama.cpp could not create a context"
        self._batch = library.llama_batch_init(params.n_batch, 0, 1)

    def generate(self, prompts_ids: Sequence[Sequence[int]], count: int) -> int:
        """Decode ``count`` tokens after each prompt, and return the number of all of them."""
        library = self._library
        library.llama_memory_clear(library.llama_get_memory(self._context), False)
        new: list[Sequence[int]] = list(prompts_ids)
        ends = [0] * len(new)
        for _ in range(count):
            new = [[token] for token in self._pass(new, ends)]
        return count * len(new)

    def _pass(self, new: Sequence[Sequence[int]], ends: list[int]) -> list[int]:
        """Decode the new tokens of each sequence, and return the likeliest next ones."""
        batch, place, last = self._batch, 0, []
        for sequence, ids in enumerate(new):
            for token in ids:
                batch.token[place], batch.pos[place] = token, ends[sequence]
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                batch.logits[place] = False
                ends[sequence], place = ends[sequence] + 1, place + 1
            batch.logits[place - 1] = True
            last.append(place - 1)
        batch.n_tokens = place
        code = self._library.llama_decode(self._context, batch)
        assert code == 0, f"llama_decode failed with the code {code}"
        return [self._likeliest(row) for row in last]

    def _likeliest(self, row: int) -> int:
        logits = self._library.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax())


def stream_and_batch(arguments: argparse.Namespace) -> dict[str, Any]:
    """Against mlx-lm and llama.cpp, whichever is installed."""
    count: int = arguments.tokens
    rows = prompts(arguments.rows)
    slots: dict[str, Any] = {} if len(rows) == len(PROMPTS) else {"parallel_slots": len(rows)}
    with ExitStack() as stack:
        ours = stack.enter_context(load(arguments.model, arguments.backend, **slots))
        contestants = {"core": own_calls(ours, count, rows)}
        for dtype in arguments.openvino:
            options = {"dtype": dtype, "n_threads": usable_cores()}
            model = core.load_model(arguments.model, backend="openvino", options=options, **slots)
            contestants[f"core openvino {dtype}"] = own_calls(stack.enter_context(model), count)
        if find_spec("mlx_lm"):
            contestants["mlx_lm"] = mlx_lm_calls(arguments.model, count, rows)
        if arguments.gguf and find_spec("llama_cpp"):
            given = {arguments.gguf.stem.rpartition(".")[2]: arguments.gguf}
            quantised_files = {kind: quantised(arguments.gguf, kind) for kind in arguments.kinds}
            for kind, file in (given | quantised_files).items():
                contestants[f"llama.cpp {kind}"] = llama_calls(file, count, rows)
                model = core.load_model(file, backend="llama_cpp", parallel_slots=len(PROMPTS))
                contestants[f"core llama_cpp {kind}"] = own_calls(stack.enter_context(model), count)
        return {
            name: compare({who: calls[place] for who, calls in contestants.items()}, arguments.runs)
            for place, name in enumerate(("stream", "batch"))
            if name in arguments.only
        }


def refill(path: Path, runs: int) -> dict[str, Any]:
    """Against the same engine, in which a free slot waits for the last of its neighbours."""
    dice = random.Random(0)
    lengths = [dice.randint(4, 128) for _ in range(64)]
    with load(path, parallel_slots=8) as refilled, load(path, parallel_slots=8) as waiting:
        engine = waiting._engine
        admit = engine._admit
        engine._admit = lambda: None if engine._batch.live or engine._prefills else admit()  # type: ignore[method-assign]

        def run(model: MlxModel) -> int:
            configs = [core.GenerateConfig(max_tokens=length) for length in lengths]
            streams = [
                model.submit(PROMPTS[index % len(PROMPTS)], config)
                for index, config in enumerate(configs)
            ]
            return sum(len(list(stream)) for stream in streams)

        return compare({"refill": lambda: run(refilled), "none": lambda: run(waiting)}, runs)


def first_token(path: Path, runs: int) -> dict[str, Any]:
    """Seconds to the first token, with chunks and without."""
    whole = {"prefill_chunk": 4096, "token_budget": 4096}
    with load(path) as chunked, load(path, options=whole) as unchunked:
        ids = (chunked.encode(" ".join(PROMPTS)) * 100)[:2000]
        long = chunked.decode(ids)
        waits: dict[str, list[float]] = {"chunks": [], "whole": []}
        for number in range(runs + 1):
            for name, model in (("chunks", chunked), ("whole", unchunked)):
                seconds = short_behind_long(model, long)
                if number:
                    waits[name].append(seconds)
    medians = {f"{name}_seconds": round(statistics.median(v), 3) for name, v in waits.items()}
    ratio = statistics.median(waits["chunks"]) / statistics.median(waits["whole"])
    return {"prompt_tokens": len(ids), **medians, "ratio": round(ratio, 3)}


def short_behind_long(model: MlxModel, long: str) -> float:
    """A short request while a long prompt runs: seconds until its first token."""
    stream = model.submit(long, core.GenerateConfig(max_tokens=1))
    time.sleep(0.1)  # it is tokenised, admitted, and its first chunk runs
    started = time.perf_counter()
    next(model.generate("Hello", max_tokens=2))
    seconds = time.perf_counter() - started
    list(stream)
    return seconds


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    model = cache / "core" / "models" / "smollm2-135m-instruct"
    parser = argparse.ArgumentParser(description="Time decoding, beside mlx-lm's and llama.cpp's.")
    parser.add_argument("--model", type=Path, default=model)
    parser.add_argument("--gguf", type=Path, help="the same model; default: the default model's")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=["F32", "Q8_0"],
                        help="files to be made of it for llama.cpp")  # fmt: skip
    parser.add_argument("--openvino", nargs="*", metavar="DTYPE", default=[],
                        help="further contestants: openvino at these dtypes")  # fmt: skip
    parser.add_argument("--runs", type=int, default=5, help="runs of each; default 5")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of a stream; default 64")
    parser.add_argument("--rows", type=int, default=len(PROMPTS), help="of a batch; default 8")
    parser.add_argument("--backend", default="mlx_cpu", help="of stream and batch")
    parser.add_argument("--only", nargs="+", choices=MARKS, default=list(MARKS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report there")
    arguments = parser.parse_args()
    if arguments.gguf is None and arguments.model == model:
        arguments.gguf = Path(fetch(model.name).gguf or "")
    return arguments


def main() -> int:
    """Measure and print; 1 when a mark is missed."""
    arguments = parse_arguments()
    path, runs, only = arguments.model, arguments.runs, arguments.only
    report: dict[str, Any] = {}
    if {"stream", "batch"} & set(only):
        report |= stream_and_batch(arguments)
    if "refill" in only:
        report["refill"] = refill(path, runs)
    if "first_token" in only:
        report["first_token"] = first_token(path, runs)
    settings = {
        "model": path.name,
        "machine": machine.describe(usable_cores()),
        "tokens": arguments.tokens,
        "runs": runs,
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "blas": BLAS.name,
        "MLX_DISABLE_COMPILE": os.environ.get("MLX_DISABLE_COMPILE"),
        "marks": MARKS,
    }
    text = json.dumps(settings | report, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    missed = [name for name in report if (report[name]["ratio"] < MARKS[name])]
    if "first_token" in report:
        missed = [name for name in missed if name != "first_token"]
        missed += ["first_token"] * (report["first_token"]["ratio"] > MARKS["first_token"])
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
