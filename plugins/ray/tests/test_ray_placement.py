"""How many actors, with what, and why; without a cluster."""

from __future__ import annotations

import pytest

import core
from core_ray.datasets import _loading
from core_ray.placement import placed

CPUS = [{"CPU": 8.0}, {"CPU": 4.0}, {"memory": 1e9}]
GPUS = [{"CPU": 16.0, "GPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}, {"CPU": 64.0}]


def test_a_gpu_for_each_actor() -> None:
    found = placed(GPUS)
    assert (found.actors, found.num_gpus, found.num_cpus, found.threads) == (6, 1.0, None, None)
    assert found.reason == "one per 1 of 6 GPUs"
    assert placed(GPUS, num_gpus=2).actors == 3
    assert placed(GPUS, num_gpus=0.5).actors == 12
    assert placed(GPUS, num_cpus=4).num_gpus == 0


def test_an_actor_for_each_node_without_gpus() -> None:
    found = placed(CPUS)
    assert (found.actors, found.num_cpus, found.threads) == (2, 0.0, None)


def test_cpus_that_are_asked_for_are_threads_and_leave_room_to_read() -> None:
    found = placed(CPUS, num_cpus=2)
    assert (found.actors, found.threads) == (5, 2)
    assert placed([{"CPU": 2.0}], num_cpus=2).actors == 1
    assert placed(CPUS, 4, 2).reason == "as asked"


@pytest.mark.parametrize("asked", [{"num_gpus": 1}, {"num_cpus": 16}, {"actors": 0}])
def test_what_no_node_has_is_refused(asked: dict[str, int]) -> None:
    with pytest.raises(core.InvalidOptionError):
        placed(CPUS, **asked)


def test_a_key_is_not_sent_through_the_cluster() -> None:
    """Ray stores and logs what its actors are made of."""
    options = {"options": {"api_key": "sk-MARKED"}}
    with pytest.raises(core.InvalidOptionError, match="environment of the processes") as refused:
        _loading("http://127.0.0.1:1", {"options": options}, None)
    assert "sk-MARKED" not in str(refused.value)
    assert callable(_loading("http://127.0.0.1:1", {"options": {"options": {}}}, None))
