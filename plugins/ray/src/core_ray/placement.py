"""Number and resources of a cluster's actors: as requested, or by its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray

import core
from core import validate

Node = Mapping[str, float]
"""The resources of a node: "CPU", "GPU" and others, each as a number."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The actors of a cluster. ``threads`` is None if a model uses its node's free cores."""

    actors: int
    num_cpus: float | None
    num_gpus: float
    threads: int | None
    reason: str


def placed(
    nodes: Sequence[Node],
    actors: int | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
) -> Placement:
    """Return the placement on these nodes; the rest follows from the given values.

    One GPU per actor if there are any; else one actor per node, which reserves no CPU in Ray: CPUs
    are for reading and writing, and an actor of a lost node has room on any other. Raises
    `InvalidOptionError` for resources that no node has.
    """
    gpus = sum(node.get("GPU", 0) for node in nodes)
    if num_gpus is None:
        num_gpus = 1.0 if gpus and num_cpus is None else 0.0
    threads = None if num_cpus is None else max(1, int(num_cpus))
    if num_gpus:
        room, reason = _room(nodes, "GPU", num_gpus), f"one per {num_gpus:g} of {gpus:g} GPUs"
    elif num_cpus is not None:
        # Without a CPU to read, and one for the filter of a resumed job, nothing would progress.
        left = max(1, int((sum(node.get("CPU", 0) for node in nodes) - 2) // num_cpus))
        room = min(left, _room(nodes, "CPU", num_cpus))
        reason = f"one per {num_cpus:g} CPUs, with two left for reading and writing"
    else:
        room, num_cpus = sum(node.get("CPU", 0) >= 1 for node in nodes), 0.0
        reason = "one per node with CPUs, as there are no GPUs"
    if not room:
        name, amount = ("num_gpus", num_gpus) if num_gpus else ("num_cpus", num_cpus)
        raise core.InvalidOptionError(name, amount, "at most what a node of the cluster has")
    if actors is not None:
        room, reason = validate.integer("concurrency", actors, 1), "as asked"
    return Placement(room, num_cpus, num_gpus, threads, reason)


def _room(nodes: Sequence[Node], name: str, amount: float) -> int:
    """Return the number of actors with this amount each that fit on the nodes."""
    return sum(int(node.get(name, 0) // amount) for node in nodes)


def alive() -> list[Node]:
    """Return the resources of each node of the cluster; Ray is started if needed."""
    if not ray.is_initialized():
        ray.init()
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
