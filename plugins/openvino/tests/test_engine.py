"""Faults on the way: each ends the requests that it concerns, and the model works on."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from array import array
from types import NoneType
from typing import Any, cast

import numpy as np
import pytest

import core
from core.errors import GenerationCancelled, GenerationTimeout, ModelClosedError
from core_openvino.batch import PagedBatch
from core_openvino.model import OpenVinoModel
from core_openvino.session import PagedSession
from core_runtime.sequences.session import DecodeError, ScarceMemoryError
from runtime.tests.tiny import Checkpoint


def ids(model: OpenVinoModel, prompt: str, count: int = 8) -> list[int]:
    return [token.id for token in model.generate(prompt, max_tokens=count)]


def settled(model: OpenVinoModel) -> tuple[int, int]:
    """Free cells and sequences, when what has ended has given back what it had."""
    pool = model._passes._pool
    return model._owner.run(lambda: (pool.cells, pool.sequences))


@pytest.fixture
def everything(tiny_model: OpenVinoModel) -> tuple[int, int]:
    pool = tiny_model._passes._pool
    return pool.size, tiny_model._loaded.session.n_seq_max


def fail_for(monkeypatch: pytest.MonkeyPatch, token: int, error: DecodeError) -> None:
    """`decode` raises where a batch holds this token."""
    decode = PagedSession.decode

    def failing(session: PagedSession, batch: PagedBatch) -> None:
        if token in batch.ids:
            raise error
        decode(session, batch)

    monkeypatch.setattr(PagedSession, "decode", failing)


@pytest.mark.parametrize("error", [DecodeError("the code -3"), DecodeError("no free cells")])
def test_a_failed_batch_ends_the_request_that_it_concerns(
    tiny_model: OpenVinoModel,
    monkeypatch: pytest.MonkeyPatch,
    everything: tuple[int, int],
    error: DecodeError,
) -> None:
    wanted = ids(tiny_model, "ab a")
    [bad] = tiny_model.encode("Q")
    assert bad not in wanted
    fail_for(monkeypatch, bad, error)
    rows = tiny_model.batch_generate(["ab a", "Q", "ab a"], max_tokens=8)
    assert [[token.id for token in row.tokens] for row in rows] == [wanted, [], wanted]
    assert str(error) in str(rows[1].error)
    assert [row.finish_reason for row in rows] == ["length", "error", "length"]
    assert settled(tiny_model) == everything


def test_a_row_that_finds_no_memory_says_so(
    tiny_model: OpenVinoModel, monkeypatch: pytest.MonkeyPatch, everything: tuple[int, int]
) -> None:
    fail_for(monkeypatch, tiny_model.encode("Q")[0], ScarceMemoryError("Failed to allocate"))
    prompts, labels = ["ab a", "Q", "ab a"], ["a", "b"]
    for rows in (
        tiny_model.batch_generate(prompts, max_tokens=2),
        tiny_model.classify(prompts, labels=labels),
        tiny_model.hidden_states(prompts, layers=(0,)),
    ):
        assert [type(row.error) for row in rows] == [NoneType, core.OutOfMemoryError, NoneType]
        assert re.search("Out of memory for .*Failed to allocate", str(rows[1].error))
    assert settled(tiny_model) == everything


def test_a_step_outside_openvino_that_finds_no_memory_says_so(
    tiny_model: OpenVinoModel, monkeypatch: pytest.MonkeyPatch, everything: tuple[int, int]
) -> None:
    """Hidden states are joined after the pass, and logits are computed when they are read."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 20.5 GiB")

    with monkeypatch.context() as patch:
        patch.setattr("core_openvino.session.np.concatenate", full)
        [row] = tiny_model.hidden_states(["ab a"], layers=(0,))
    assert isinstance(row.error, core.OutOfMemoryError)
    with monkeypatch.context() as patch:
        patch.setattr("core_openvino.session._set", full)
        [answer] = tiny_model.classify(["ab a"])
    assert isinstance(answer.error, core.OutOfMemoryError)
    assert tiny_model.classify(["ab a"])[0].error is None
    assert settled(tiny_model) == everything


def test_a_batch_that_fails_for_a_moment_is_computed_again(
    tiny_model: OpenVinoModel, monkeypatch: pytest.MonkeyPatch, everything: tuple[int, int]
) -> None:
    wanted = [ids(tiny_model, prompt) for prompt in ("ab a", "b")]
    decode, left = PagedSession.decode, [3]

    def failing(session: PagedSession, batch: PagedBatch) -> None:
        decode(session, batch)  # it has computed, and filled the cache
        left[0] -= 1
        if left[0] == 0 and len(batch.ids) > 1:
            raise DecodeError("once")

    monkeypatch.setattr(PagedSession, "decode", failing)
    rows = tiny_model.batch_generate(["ab a", "b"], max_tokens=8)
    assert left[0] < 0
    assert [[token.id for token in row.tokens] for row in rows] == wanted
    assert settled(tiny_model) == everything


def test_a_step_that_fails_ends_all_and_the_model_works_on(
    tiny_model: OpenVinoModel, monkeypatch: pytest.MonkeyPatch, everything: tuple[int, int]
) -> None:
    wanted = ids(tiny_model, "ab a")
    stream = tiny_model.generate("b", max_tokens=300)
    next(stream)
    with monkeypatch.context() as patch:
        patch.setattr(PagedBatch, "clear", _raise)
        with pytest.raises(ZeroDivisionError):
            list(stream)
    assert settled(tiny_model) == everything
    assert ids(tiny_model, "ab a") == wanted


def _raise(*_: object) -> None:
    raise ZeroDivisionError("a step")


def test_streams_that_are_closed_or_dropped_give_back_what_they_had(
    tiny_model: OpenVinoModel, everything: tuple[int, int]
) -> None:
    closed, dropped = (tiny_model.generate("ab", max_tokens=300) for _ in range(2))
    next(closed)
    next(dropped)
    assert settled(tiny_model)[0] < everything[0]
    closed.close()
    del dropped
    gc.collect()
    assert len(ids(tiny_model, "b")) == 8
    assert settled(tiny_model) == everything


def test_cancel_and_timeout_are_looked_at_between_chunks(checkpoint: Checkpoint) -> None:
    class Third:
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 2

    own = {"n_threads": 1, "n_batch": 32}
    with core.load_model(
        checkpoint(max_position_embeddings=512), backend="openvino", options=own
    ) as model:
        cancel = Third()
        with pytest.raises(GenerationCancelled):
            next(model.generate("!" * 500, cancel=cancel))
        assert cancel.asked < 8  # of 16 chunks
        with pytest.raises(GenerationTimeout):
            list(model.generate("!" * 400, timeout=1e-4))
        assert len(list(model.generate("ab", max_tokens=4))) == 4


def test_closing_ends_what_runs(checkpoint: Checkpoint) -> None:
    model = cast(
        "OpenVinoModel",
        core.load_model(
            checkpoint(max_position_embeddings=512), backend="openvino", options={"n_threads": 1}
        ),
    )
    stream = model.generate("ab", max_tokens=400)
    next(stream)
    session = model._loaded.session
    model.close()
    assert not cast("PagedSession", session).cache_bytes
    with pytest.raises(ModelClosedError):
        list(stream)
    with pytest.raises(ModelClosedError):
        model.classify(["ab"])
    model.close()


def test_a_failed_graph_of_inner_layers_fails_its_rows_only(
    tiny_model: OpenVinoModel, monkeypatch: pytest.MonkeyPatch, everything: tuple[int, int]
) -> None:
    def failing() -> None:
        raise RuntimeError("std::bad_alloc")

    with monkeypatch.context() as patch:
        patch.setattr(tiny_model._loaded.session, "_compile_inner", failing)
        rows = tiny_model.hidden_states(["ab a", "b"], layers=(1, 2))
        assert ["std::bad_alloc" in str(row.error) for row in rows] == [True, True]
        assert tiny_model.hidden_states(["ab a"])[0].error is None
    assert settled(tiny_model) == everything
    assert tiny_model.hidden_states(["ab a"], layers=(1,))[0].error is None


def test_a_dropped_model_frees_its_memory_and_its_thread(checkpoint: Checkpoint) -> None:
    before = set(threading.enumerate())
    model: Any = core.load_model(
        checkpoint(max_position_embeddings=512), backend="openvino", options={"n_threads": 1}
    )
    assert len(list(model.generate("ab", max_tokens=3))) == 3
    session, gone = model._loaded.session, weakref.ref(model)
    mine = set(threading.enumerate()) - before
    del model
    gc.collect()
    assert gone() is None
    for thread in mine:
        thread.join(60)
    assert not cast("PagedSession", session).cache_bytes
    assert not any(thread.is_alive() for thread in mine)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gemma2"])
def test_states_of_inner_layers_are_those_of_mlx(checkpoint: Checkpoint, family: str) -> None:
    directory, texts = checkpoint(family), ["ab", "b a b", "ab"]
    with core.load_model(directory, backend="openvino", options={"dtype": "float32"}) as model:
        layers = (1, model.info.num_layers, 0)
        rows = cast(OpenVinoModel, model).hidden_states(texts, layers=layers)
        size, last = model.info.hidden_size, cast(OpenVinoModel, model).hidden_states(texts)
        assert last[1].states == (rows[1].states or array("f"))[size : 2 * size]
    with core.load_model(directory, backend="mlx_cpu") as model:
        wanted = cast(core.HiddenStates, model).hidden_states(texts, layers=layers)
    for row, expected in zip(rows, wanted, strict=True):
        assert row.layers == layers
        assert np.allclose(np.array(row.states), np.array(expected.states), atol=1e-4)
