"""A session alone: neighbours, shared and restored sequences, room, interrupts, its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from core_openvino.batch import PagedBatch
from core_runtime.sequences.session import DecodeError, InterruptedPassError
from plugins.openvino.tests.passes import (
    Logits,
    assert_equal_rows,
    chunked_logits,
    distance,
    last_logits,
    session_of,
)
from runtime.tests.tiny import Checkpoint

if TYPE_CHECKING:
    from core_openvino.session import PagedSession

WIDTH = 32  # of a block
FAMILIES = ["llama", "gemma3", "qwen2"]
# Logits of random weights have a standard deviation of 0.5 to 2.
NEIGHBOURS = {"float32": 1e-5, "bfloat16": 0.15, "int8": 0.05}


def _prompts(lengths: list[int]) -> list[list[int]]:
    random = np.random.default_rng(5)
    return [random.integers(2, 90, length).tolist() for length in lengths]


@pytest.fixture(params=FAMILIES)
def session(checkpoint: Checkpoint, request: pytest.FixtureRequest) -> Iterator[PagedSession]:
    """A session of each family, for 512 positions of 8 sequences."""
    directory = checkpoint(request.param, max_position_embeddings=4096)
    with session_of(directory, cells=512, sequences=8) as opened:
        yield opened


def _read(session: PagedSession, ids: list[int], sequence: int) -> Logits:
    """Append tokens to a sequence, and return the logits after the last one."""
    batch = session.new_batch()
    place = batch.add(ids, session.end(sequence), sequence, 1)
    session.decode(batch)
    return session.logits(place).copy()


def _free(session: PagedSession) -> int:
    return len(session._tables._free)


@pytest.mark.parametrize("dtype", NEIGHBOURS)
@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours_order_and_equal_prompts_change_nothing(
    checkpoint: Checkpoint, family: str, dtype: str
) -> None:
    prompts = _prompts([1, 2, 31, 32, 33, 64, 90, 7])
    with session_of(checkpoint(family, max_position_embeddings=512), dtype) as session:
        alone = np.concatenate([last_logits(session, [prompt]) for prompt in prompts])
        others = [
            last_logits(session, prompts),
            last_logits(session, prompts[::-1])[::-1],
            last_logits(session, [*prompts, *prompts])[len(prompts) :],
            np.concatenate(
                [
                    last_logits(session, pair)
                    for pair in zip(prompts[::2], prompts[1::2], strict=True)
                ]
            ),
        ]
        steps = np.stack([chunked_logits(session, prompt, 1)[-1] for prompt in prompts])
    for rows in (*others, steps):
        assert distance(rows, alone) < NEIGHBOURS[dtype]


def test_a_lone_token_is_computed_as_one_of_two() -> None:
    batch = PagedBatch()
    batch.add([4], 10, 0, 1)
    batch.add([5, 6, 7], 0, 1, 2)
    batch.add([8], 3, 2)
    pairs = batch.with_pairs()
    assert pairs.ids == [4, 4, 5, 6, 7, 8, 8]
    assert pairs.positions == [10, 11, 0, 1, 2, 3, 4]
    assert pairs.spans == [(0, 2), (1, 3), (2, 2)]
    assert pairs.rows == [0, 3, 4]
    assert pairs.with_pairs() is pairs


def test_a_second_token_takes_no_place(session: PagedSession) -> None:
    """Not even where the lone one fills its block, whose copies then share no further block."""
    free = _free(session)
    prompt, *tails = _prompts([WIDTH - 1, 1, 1, 1])
    wanted = [last_logits(session, [prompt + tails[0] + tail])[0] for tail in tails[1:]]
    _read(session, prompt, 0)
    _read(session, tails[0], 0)
    assert (session.end(0), free - _free(session)) == (WIDTH, 1)
    session.copy(0, 1)
    rows = [_read(session, tail, number) for number, tail in enumerate(tails[1:])]
    assert free - _free(session) == 3
    assert_equal_rows(rows[0], wanted[0])
    assert_equal_rows(rows[1], wanted[1])


def test_shared_sequences_continue_on_their_own(session: PagedSession) -> None:
    [prefix, one, two] = _prompts([45, 5, 9])
    wanted = [last_logits(session, [prefix + tail])[0] for tail in (one, two, one + two)]
    everything = _free(session)
    _read(session, prefix, 0)
    session.copy(0, 1)
    session.copy(0, 2)
    assert everything - _free(session) == 2  # shared
    assert_equal_rows(_read(session, one, 1), wanted[0])
    assert_equal_rows(_read(session, two, 2), wanted[1])
    assert_equal_rows(_read(session, one, 0), wanted[0])
    session.drop(1, len(prefix) + len(one))
    assert_equal_rows(_read(session, two, 1), wanted[2])
    session.drop(0, len(prefix))
    session.drop(1)
    assert_equal_rows(_read(session, two, 0), wanted[1])
    for sequence in range(3):
        session.drop(sequence)
    assert _free(session) == everything


def test_sequences_side_by_side_in_many_steps(session: PagedSession) -> None:
    """Rows at different positions, as slots are: prompts of some, single tokens of others."""
    prompts = _prompts([70, 40, 3, 33])
    wanted = [chunked_logits(session, prompt, 100) for prompt in prompts]
    random, places = np.random.default_rng(0), [0] * len(prompts)
    while any(place < len(prompt) for place, prompt in zip(places, prompts, strict=True)):
        batch, reads = session.new_batch(), []
        for row in random.permutation(len(prompts)).tolist():
            start, prompt = places[row], prompts[row]
            count = min(int(random.choice([0, 1, 1, 1, 20])), len(prompt) - start)
            if count:
                reads.append(
                    (
                        row,
                        start + count - 1,
                        batch.add(prompt[start : start + count], start, row, 1),
                    )
                )
                places[row] += count
        if reads:
            session.decode(batch)
        for row, position, place in reads:
            assert_equal_rows(session.logits(place), wanted[row][position])


def test_a_state_is_restored_into_another_sequence(session: PagedSession) -> None:
    [prefix, tail] = _prompts([75, 4])
    _read(session, prefix, 0)
    state = session.state(0)
    assert len(state) == session.state_bytes(0)
    wanted = _read(session, tail, 0)
    session.drop(0)
    _read(session, tail * 9, 1)  # it takes the blocks that the state came from
    assert session.restore(state, 3)
    assert session.end(3) == len(prefix)
    assert np.array_equal(_read(session, tail, 3), wanted)


def test_hidden_states_and_unread_tokens(session: PagedSession) -> None:
    batch = session.new_batch()
    place = batch.add([2, 3, 4], 0, 0, 2)
    assert place == 1
    session.decode_hidden(batch, [session.config.num_layers])
    assert session.hidden(1).shape == (session.config.hidden_size,)
    assert session.logits(2).shape == (session.config.vocab_size,)
    for read in (session.hidden, session.logits):
        with pytest.raises(DecodeError, match="token 0"):
            read(0)
    batch.clear()
    batch.add([5], 3, 0)
    session.decode(batch)  # nothing is read
    with pytest.raises(DecodeError):
        session.logits(0)


def test_without_room_tables_stay_and_a_smaller_pass_works(session: PagedSession) -> None:
    [prefix, tail] = _prompts([40, 5])
    wanted = last_logits(session, [prefix + tail])[0]
    everything = _free(session)
    _read(session, prefix, 0)
    session.copy(0, 1)
    before = _free(session)
    batch = session.new_batch()
    batch.add([2] * 5, 0, 2)
    batch.add([3] * 3, len(prefix), 1)
    batch.add([4] * (everything * WIDTH), len(prefix), 0)
    with pytest.raises(DecodeError, match="no block of the KV cache is free"):
        session.decode(batch)
    assert [session.end(sequence) for sequence in range(3)] == [40, 40, 0]
    # At most one block stays: the copy of the shared one, which sequence 1 has for itself now.
    assert before - _free(session) <= 1
    assert_equal_rows(_read(session, tail, 1), wanted)
    assert_equal_rows(_read(session, tail, 0), wanted)
    assert not session.restore(np.concatenate([np.array([9999]).view(np.uint8)]), 3)
    assert session.end(3) == 0


def test_a_failed_pass_leaves_the_tables_right(
    session: PagedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core_openvino.session import PagedSession

    [prefix, tail] = _prompts([40, 5])
    wanted = last_logits(session, [prefix + tail])[0]
    everything = _free(session)
    _read(session, prefix, 0)
    run = PagedSession._run
    for error, raised in ((RuntimeError("of OpenVINO"), DecodeError), (KeyError("x"), KeyError)):

        def failing(self: PagedSession, batch: object, error: Exception = error) -> Logits:
            run(self, batch)  # type: ignore[arg-type]  # keys and values were written
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(PagedSession, "_run", failing)
            with pytest.raises(raised):
                _read(session, tail * 20, 0)
        assert session.end(0) == len(prefix)
    assert_equal_rows(_read(session, tail, 0), wanted)
    session.drop(0)
    assert _free(session) == everything


@contextmanager
def interrupting(session: PagedSession, wait: float) -> Iterator[None]:
    """Interrupt what runs after ``wait`` seconds, and again until it ends: a thread may be late."""
    ended = threading.Event()

    def interrupt() -> None:
        time.sleep(wait)
        while not ended.is_set():
            session.interrupt()
            time.sleep(0.0005)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_an_interrupted_pass_leaves_nothing_behind(checkpoint: Checkpoint, family: str) -> None:
    """A node keeps its output's shape while its inputs have theirs: passes of equal size follow."""
    directory = checkpoint(
        family, max_position_embeddings=4096, num_hidden_layers=6, layer_types=None
    )
    [prompt] = _prompts([3000])
    interrupted = 0
    with session_of(directory) as session:
        wanted = {size: last_logits(session, [prompt[:size]]) for size in (1, 2, 50)}
        everything = _free(session)
        for wait in np.linspace(0.0, 0.03, 25):
            last_logits(session, [prompt[:50]])
            batch = session.new_batch()
            batch.add(prompt, 0, 0, 1)
            try:
                with interrupting(session, wait):
                    session.decode(batch)
            except InterruptedPassError:
                interrupted += 1
                assert (session.end(0), _free(session)) == (0, everything)
            session.drop(0)
            session.interrupt()  # nothing runs
            for size in (50, 1, 2):
                assert_equal_rows(last_logits(session, [prompt[:size]]), wanted[size])
    assert interrupted


def test_an_interrupted_pass_after_a_past_leaves_nothing_behind(checkpoint: Checkpoint) -> None:
    """Capped attention also has tensors whose sizes are those of the past."""
    directory = checkpoint("gemma2", max_position_embeddings=4096, num_hidden_layers=6)
    [prompt] = _prompts([1000])
    interrupted = 0
    with session_of(directory) as session:
        wanted = {size: last_logits(session, [prompt[:size]]) for size in (1, 2, 50)}
        _read(session, prompt[:160], 9)
        for wait in np.linspace(0.0, 0.03, 40):
            last_logits(session, [prompt[:50]])
            session.copy(9, 0)
            batch = session.new_batch()
            batch.add(prompt[160:], 160, 0, 1)
            try:
                with interrupting(session, wait):
                    session.decode(batch)
            except InterruptedPassError:
                interrupted += 1
            session.drop(0)
            for size in (50, 1, 2):
                assert_equal_rows(last_logits(session, [prompt[:size]]), wanted[size])
    assert interrupted


def test_an_interrupt_after_the_last_pass_does_not_excuse_a_failure(
    session: PagedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted pass runs again, so that a failure taken for one would run forever."""
    request = session._plain.request

    class Late:
        def __getattr__(self, name: str) -> object:
            return getattr(request, name)

        def wait(self) -> None:
            request.wait()
            session.interrupt()

    monkeypatch.setattr(session._plain, "request", Late())
    _read(session, [2, 3], 0)

    def failing(*_: object) -> None:
        raise MemoryError("of masks")

    monkeypatch.setattr(type(session), "_inputs", failing)
    with pytest.raises(DecodeError, match="of masks") as raised:
        _read(session, [4], 0)
    assert not isinstance(raised.value, InterruptedPassError)


def test_a_closed_session_is_empty_and_may_be_closed_again(checkpoint: Checkpoint) -> None:
    with session_of(checkpoint()) as session:
        last_logits(session, [[2, 3]])
        assert session.cache_bytes > 0
    assert session.cache_bytes == 0
    session.close()


def test_the_tokens_of_a_sequence_stay_together(session: PagedSession) -> None:
    batch = session.new_batch()
    batch.add([2], 0, 0)
    batch.add([3, 4], 1, 0, 1)  # the same span
    batch.add([2], 0, 1)
    with pytest.raises(ValueError, match="sequence 0 are not side by side"):
        batch.add([5], 3, 0)
    assert (batch.spans, batch.rows) == ([(0, 3), (1, 1)], [2])
