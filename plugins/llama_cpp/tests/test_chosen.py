"""Options of a load: their defaults with reasons, and their ranges."""

from __future__ import annotations

import pytest

from core.errors import InvalidOptionError
from core.options import LoadConfig
from core_llama_cpp.backend import LlamaCpp
from core_llama_cpp.chosen import Choices
from core_llama_cpp.session import MAX_SEQUENCES
from core_runtime.machine import usable_cores
from core_runtime.sequences.session import CLASSIFY_SEQUENCES


def _choices(offload: bool = False, slots: int = 0, **options: object) -> Choices:
    return Choices.of(LoadConfig(parallel_slots=slots, options=options), offload)


def _values(choices: Choices) -> dict[str, str]:
    return {choice.name: choice.value for choice in choices.shown()}


def test_defaults_on_a_cpu_with_a_blas_and_with_a_gpu() -> None:
    threads = str(usable_cores())
    plain, blas = _choices(), Choices.of(LoadConfig(), offload=False, blas=True)
    assert list(_values(plain).items()) == [
        ("parallel_slots", "8"),
        ("n_threads", threads),
        ("n_batch", "512"),
        ("n_ubatch", "63"),
    ]
    assert list(_values(blas).values()) == ["8", threads, "512", "512"]
    assert list(_values(_choices(offload=True)).values()) == ["32", threads, "2048", "512"]
    assert all(choice.reason for choice in (*plain.shown(), *blas.shown()))


def test_what_is_asked_for_wins() -> None:
    choices = _choices(
        slots=3, n_threads=5, n_batch=64, n_ubatch=32, flash_attn=False, log_level="info"
    )
    assert list(_values(choices).values()) == ["3", "5", "64", "32"]
    assert {choice.reason for choice in choices.shown()} == {"asked for"}
    assert choices.flash_attn is False
    assert choices.log_level == "info"


def test_a_small_batch_takes_the_passes_with_it() -> None:
    assert _values(_choices(n_batch=40))["n_ubatch"] == "40"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_threads", 0),
        ("n_threads", 513),
        ("n_threads", "2"),
        ("n_batch", 31),
        ("n_batch", 2**20 + 1),
        ("n_batch", 64.0),
        ("n_ubatch", 0),
        ("n_ubatch", 513),
        ("flash_attn", 1),
        ("log_level", "loud"),
        ("log_level", None),
    ],
)
def test_wrong_values_are_named(option: str, value: object) -> None:
    assert option in LlamaCpp.own_options
    with pytest.raises(InvalidOptionError, match=option):
        Choices.of(LoadConfig(options={option: value}), offload=False)


def test_slots_within_what_a_context_can_hold() -> None:
    most = MAX_SEQUENCES - CLASSIFY_SEQUENCES
    assert _values(_choices(slots=most))["parallel_slots"] == str(most)
    with pytest.raises(InvalidOptionError, match=f"at most {most}"):
        _choices(slots=most + 1)


def test_every_slot_has_a_place_in_a_batch() -> None:
    with pytest.raises(InvalidOptionError, match="n_batch"):
        _choices(slots=100, n_batch=99)
