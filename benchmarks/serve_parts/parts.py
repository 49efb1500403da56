"""The parts of the measurement: each starts what it needs, and returns its figures.

What is compared runs in turns, each turn begins with another, and medians are taken: of the turns'
ratios where both sides do the same in each turn, else of each side.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from time import perf_counter
from typing import Any

import core
import core_tasks
from benchmarks.classify_parts.workloads import FEW_SHOT, LABELS, QUESTION, headlines
from benchmarks.serve_parts import requests, servers
from benchmarks.serve_parts.client import Ask, Load, alternately, load
from benchmarks.serve_parts.servers import MissingError, Server, running

Figures = dict[str, Any]
_LOGPROBS = 100  # of the likeliest tokens: the labels are among them


@dataclass(frozen=True, slots=True)
class Setup:
    """The model in both formats, and the numbers of requests.

    ``rows`` headlines in all orders, ``streams`` texts of ``tokens`` tokens, ``texts`` of lists,
    ``singles`` of one client, ``decisions`` of ``clients``, and ``turns``.
    """

    directory: Path
    gguf: Path
    rows: int = 72
    streams: int = 64
    tokens: int = 64
    texts: int = 2000
    singles: int = 200
    decisions: int = 256
    clients: int = 32
    turns: int = 3
    say: Callable[[str], None] = print


def in_turns(setup: Setup, works: dict[str, Callable[[int], float]]) -> dict[str, list[float]]:
    """Return each one's figure of each turn; turn -1 warms up, and does not count."""
    results: dict[str, list[float]] = {name: [] for name in works}
    names = [*works]
    for turn in range(-1, setup.turns):
        first = turn % len(names)
        for name in [*names[first:], *names[:first]]:
            figure = works[name](turn)
            if turn >= 0:
                results[name].append(figure)
                setup.say(f"    {name}, turn {turn + 1}: {figure:.4g}")
    return results


def _ratio(some: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(some, others, strict=True))


# --------------------------------------------------------------------------- what is right


def answers(setup: Setup) -> Figures:
    """Measure accuracy and flip rate over all orders of the options, for labels and for letters."""
    rows, orders = headlines()[: setup.rows], [*permutations(LABELS)]
    asks = [requests.decision(text, order) for order in orders for text, _ in rows]
    with running("core", servers.core_serve(setup.directory, "mlx_cpu")) as server:
        ours = [
            requests.chosen(reply) for reply in load(server.port, asks, setup.clients).replies()
        ]
    with core.load_model(str(setup.directory), backend="mlx_cpu") as model:
        assert isinstance(model, core.Tokenizing)
        prompts = [
            model.render_chat(requests.letters(text, order)) for order in orders for text, _ in rows
        ]
        classified = model.classify(prompts, labels=requests.LETTERS, label_prefix="")
    read = [result.raise_for_error().label or "" for result in classified]
    lettered = [
        order[requests.LETTERS.index(read[place * len(rows) + row])]
        for place, order in enumerate(orders)
        for row in range(len(rows))
    ]
    gold = [label for _, label in rows]
    return {
        "labels": agreement(ours, gold),
        "letters": agreement(lettered, gold),
        "orders": len(orders),
        "rows": len(rows),
    }


def agreement(answers: Sequence[str], gold: Sequence[str]) -> Figures:
    """Return the accuracy and flip rate of the answers to all rows, order after order.

    ``flip_rate``: the share of the rows that are not answered the same in all orders.
    """
    columns = [answers[row :: len(gold)] for row in range(len(gold))]
    right = [
        answer == wanted for answer, wanted in zip(answers, [*gold] * len(columns[0]), strict=True)
    ]
    return {
        "accuracy": statistics.mean(right),
        "flip_rate": statistics.mean(len({*column}) > 1 for column in columns),
    }


# --------------------------------------------------------------------------- ours and the library


def streams(setup: Setup) -> Figures:
    """Measure tokens/s of many concurrent streams, compared with one batch in process."""
    prompts = [f"Write about this: {text}" for text in requests.texts(setup.streams)]
    asks = [requests.stream(prompt, setup.tokens) for prompt in prompts]
    counts_of: dict[str, set[int]] = {"server": set(), "library": set()}

    def there(port: int, turn: int) -> float:
        done = load(port, asks, setup.streams)
        tokens = sum(map(requests.generated, done.bodies))
        counts_of["server"].add(tokens)
        return tokens / done.seconds

    command = servers.core_serve(setup.directory, "mlx_cpu", setup.streams)
    loading = core.LoadConfig(backend="mlx_cpu", parallel_slots=setup.streams)
    with (
        running("core", command) as server,
        core.load_model(str(setup.directory), loading) as model,
    ):
        asks = [core_named(ask, setup.directory.name) for ask in asks]

        def here(turn: int) -> float:
            begun = perf_counter()
            rows = model.batch_generate(prompts, max_tokens=setup.tokens, temperature=0.0)
            seconds = perf_counter() - begun
            tokens = sum(len(row.raise_for_error().tokens) for row in rows)
            counts_of["library"].add(tokens)
            return tokens / seconds

        speeds = in_turns(setup, {"server": partial(there, server.port), "library": here})
    return {
        "server_tokens_per_second": statistics.median(speeds["server"]),
        "library_tokens_per_second": statistics.median(speeds["library"]),
        "ratio": _ratio(speeds["server"], speeds["library"]),
        "tokens": {name: sorted(counts) for name, counts in counts_of.items()},
    }


def core_named(ask: Ask, name: str) -> Ask:
    """Return the same request, for a model by its name."""
    return Ask(ask.path, ask.body | {"model": name})


def lists(setup: Setup) -> Figures:
    """Texts a second: a list in one request, each alone from many clients, and in process."""
    count = setup.texts
    task = core_tasks.Task(requests.TEMPLATE, LABELS)
    with (
        running("core", servers.core_serve(setup.directory, "mlx_cpu")) as server,
        core.load_model(str(setup.directory), backend="mlx_cpu") as model,
    ):

        def whole(turn: int) -> float:
            ask = requests.classification(_of_turn(count, turn))
            done = load(server.port, [ask], 1)
            assert all(len(reply["data"]) == len(ask.body["texts"]) for reply in done.replies())
            return len(ask.body["texts"]) / done.seconds

        def single(turn: int) -> float:
            asks = [requests.classification([text]) for text in _of_turn(count, turn)]
            return len(asks) / load(server.port, asks, setup.clients).seconds

        def here(turn: int) -> float:
            texts = _of_turn(count, turn)
            begun = perf_counter()
            task.classify(model, texts)
            return len(texts) / (perf_counter() - begun)

        speeds = in_turns(setup, {"whole": whole, "single": single, "library": here})
    medians = {f"{name}_texts_per_second": statistics.median(speeds[name]) for name in speeds}
    return {
        **medians,
        "whole_ratio": _ratio(speeds["whole"], speeds["library"]),
        "single_ratio": _ratio(speeds["single"], speeds["library"]),
    }


def _of_turn(count: int, turn: int) -> list[str]:
    """Return all texts, or for warming up a few others."""
    return requests.texts(count) if turn >= 0 else requests.texts(min(count, 64), first=count)


def latency(setup: Setup) -> Figures:
    """Milliseconds that a decision of one client takes longer than in process.

    ``idle_ms``: the time of a request without any computation.
    """
    texts = requests.texts(setup.singles + 8)
    asks = [requests.classification([text]) for text in texts]
    task = core_tasks.Task(requests.TEMPLATE, LABELS)
    with (
        running("core", servers.core_serve(setup.directory, "mlx_cpu")) as server,
        core.load_model(str(setup.directory), backend="mlx_cpu") as model,
    ):
        added = alternately(server.port, asks, lambda place: task.classify(model, [texts[place]]))
    with running("nothing", servers.nothing_to_compute()) as server:
        idle = load(server.port, asks, 1).latencies
    added, idle = added[8:], idle[8:]  # the first ones warm up
    return {
        "added_p50_ms": 1000 * statistics.median(added),
        "idle_p50_ms": 1000 * statistics.median(idle),
        "idle_p99_ms": 1000 * sorted(idle)[int(0.99 * len(idle))],
    }


def prefix(setup: Setup) -> Figures:
    """Measure the speed-up of the second of two calls with a shared instruction of 150 tokens."""
    ratios, cached = [], []
    with running("core", servers.core_serve(setup.directory, "mlx_cpu")) as server:
        for turn in range(-1, max(setup.turns, 5)):
            # A separate prefix for each turn, so that nothing is cached; each call has other texts.
            begun = " ".join(["Turn", *str(turn + 1), "of all."])
            template = f"{begun} {FEW_SHOT}{{text}}{QUESTION}"
            calls = [
                requests.classification(
                    requests.texts(8, first=8 * (2 * turn + 2 + call)), template
                )
                for call in range(2)
            ]
            first, second = (load(server.port, [ask], 1) for ask in calls)
            if turn >= 0:
                ratios.append(first.seconds / second.seconds)
                cached.append(_cached(second))
    return {"ratio": statistics.median(ratios), "least": min(ratios), "cached_tokens": cached[-1]}


def _cached(done: Load) -> int:
    [reply] = done.replies()
    return int(reply["usage"]["prompt_tokens_details"]["cached_tokens"])


# --------------------------------------------------------------------------- other servers


_BESIDE = {
    "llama_cpp_over_llama_cpp_python": ("core, llama_cpp", "llama-cpp-python"),
    "llama_cpp_over_label_alone": ("core, llama_cpp", "llama-cpp-python, label alone"),
    "mlx_cpu_over_llama_cpp_python": ("core, mlx_cpu", "llama-cpp-python"),
    "mlx_cpu_over_label_alone": ("core, mlx_cpu", "llama-cpp-python, label alone"),
    "mlx_cpu_over_mlx_lm_server": ("core, mlx_cpu", "mlx_lm.server"),
}


def clients(setup: Setup) -> Figures:
    """Measure decisions/s of many clients that send one at a time, compared with other servers."""
    with core.load_model(str(setup.directory), backend="mlx_cpu") as model:
        ids = first_tokens(model)
    alone = partial(requests.completion, ids=ids)
    contestants: dict[str, tuple[Callable[[], list[str]], Callable[[str], Ask]]] = {
        "core, llama_cpp": (lambda: servers.core_serve(setup.gguf, "llama_cpp"), requests.decision),
        "core, mlx_cpu": (
            lambda: servers.core_serve(setup.directory, "mlx_cpu"),
            requests.decision,
        ),
        "llama-cpp-python": (
            lambda: servers.llama_cpp_python(setup.gguf, logprobs=True),
            partial(requests.completion, ids=ids, logprobs=_LOGPROBS),
        ),
        "llama-cpp-python, label alone": (
            lambda: servers.llama_cpp_python(setup.gguf, logprobs=False),
            alone,
        ),
        "mlx_lm.server": (lambda: servers.mlx_lm(setup.directory, setup.clients), alone),
    }
    labels: dict[str, list[str]] = {}
    works: dict[str, Callable[[int], float]] = {}
    with ExitStack() as stack:
        for name, (command, ask) in contestants.items():
            try:
                server = stack.enter_context(running(name, command()))
            except MissingError as error:
                setup.say(f"    without {name}: {error}")
            else:
                works[name] = partial(_decided, setup, server, ask, labels)
        rates = in_turns(setup, works)
    ours = labels["core, mlx_cpu"]
    return {
        "decisions_per_second": {name: statistics.median(speeds) for name, speeds in rates.items()},
        "same_labels_as_mlx_cpu": {
            name: statistics.mean(map(str.__eq__, chosen, ours)) for name, chosen in labels.items()
        },
        **{
            name: _ratio(rates[one], rates[other])
            for name, (one, other) in _BESIDE.items()
            if other in rates
        },
    }


def first_tokens(model: Any) -> list[int]:
    """Return the first token ids of the labels after a prompt."""
    prompt = requests.prompt("A text.")
    length = len(model.encode(prompt))
    ids = [model.encode(f"{prompt} {label}")[length] for label in LABELS]
    assert len({*ids}) == len(LABELS)
    return ids


def _decided(
    setup: Setup,
    server: Server,
    ask: Callable[[str], Ask],
    labels: dict[str, list[str]],
    turn: int,
) -> float:
    """Run one turn of a server; its answers are stored in ``labels``, under its name."""
    asks = [*map(ask, requests.texts(setup.decisions, first=setup.decisions * (turn + 1)))]
    done = load(server.port, asks, setup.clients)
    labels[server.name] = [requests.chosen(reply) for reply in done.replies()]
    return len(asks) / done.seconds


PARTS: dict[str, Callable[[Setup], Figures]] = {
    "answers": answers,
    "streams": streams,
    "lists": lists,
    "latency": latency,
    "clients": clients,
    "prefix": prefix,
}


def threads() -> int:
    """The threads that a backend computes with."""
    return int(os.environ.get("OPENBLAS_NUM_THREADS", os.cpu_count() or 1))
