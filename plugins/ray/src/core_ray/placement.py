"""How many actors a cluster is given, and with what: as asked, or as its nodes suggest."""

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
    """``threads`` is None where a model takes the cores of its node that are free."""

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
    """The placement on these nodes; what is given stands, and the rest follows from it.

    A GPU an actor where there are any; else an actor a node, which takes no CPU of Ray's books:
    these are for what reads and writes, and an actor of a lost node has room on any other.
    Raises `InvalidOptionError` for what no node has.
    """
    gpus = sum(node.get("GPU", 0) for node in nodes)
    if num_gpus is None:
        num_gpus = 1.0 if gpus and num_cpus is None else 0.0
    threads = None if num_cpus is None else max(1, int(num_cpus))
    if num_gpus:
        room, reason = _room(nodes, "GPU", num_gpus), f"one for every {num_gpus:g} of {gpus:g} GPUs"
    elif num_cpus is not None:
        # Without a CPU to read, and one for the filter of a job that goes on, nothing would move.
        left = max(1, int((sum(node.get("CPU", 0) for node in nodes) - 2) // num_cpus))
        room = min(left, _room(nodes, "CPU", num_cpus))
        reason = f"one for every {num_cpus:g} CPUs, with two left to read and write"
    else:
        room, num_cpus = sum(node.get("CPU", 0) >= 1 for node in nodes), 0.0
        reason = "one for every node with CPUs, for no GPU is there"
    if not room:
        name, asked = ("num_gpus", num_gpus) if num_gpus else ("num_cpus", num_cpus)
        raise core.InvalidOptionError(name, asked, "no more than a node of the cluster has")
    if actors is not None:
        room, reason = validate.integer("concurrency", actors, 1), "as asked"
    return Placement(room, num_cpus, num_gpus, threads, reason)


def _room(nodes: Sequence[Node], name: str, amount: float) -> int:
    """For how many actors of this amount each there is room on the nodes."""
    return sum(int(node.get(name, 0) // amount) for node in nodes)


def alive() -> list[Node]:
    """The resources of each node that the cluster has now; Ray's own start, where it has none."""
    if not ray.is_initialized():
        ray.init()
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
