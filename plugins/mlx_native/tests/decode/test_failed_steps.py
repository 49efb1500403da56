"""A step that fails: who gets the error, who does not, and that the model works afterwards."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import mlx.core as mx
import pytest

import core
from core.kit.text_stream import StreamDetokenizer
from core_mlx_native.backend import Cpu
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.decode import engine
from core_mlx_native.decode.batch import DecodeBatch, SamplingRows
from core_mlx_native.decode.kv_cache import BatchCache
from core_mlx_native.decode.prefilling import Prefilling
from core_mlx_native.failures import is_out_of_memory, of_request
from core_mlx_native.model import MlxModel
from core_runtime.request import Request

T = TypeVar("T")
Checkpoint = Callable[..., Path]
Patch = pytest.MonkeyPatch

CHUNK = 8
MARK = "x"  # in a prompt that fails
PROMPTS = ["ab ab no", "no ab no ab no ab no ab no ab no ab", "b a b a b a b a b a b", "ab"]
MARKED = "ab x ab x ab x ab x ab x ab"
SHORT = core.GenerateConfig(max_tokens=5)
OUT_OF_MEMORY = [
    MemoryError(),
    RuntimeError("[malloc] Unable to allocate 68719476736 bytes."),
    RuntimeError("[metal::malloc] Attempting to allocate 9 bytes which is greater than ..."),
    RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory (00000008)"),
    RuntimeError("cudaMallocAsync(&data, size, stream) failed: out of memory"),
]
OTHERS = [ValueError("[matmul] shapes"), RuntimeError("no such kernel"), ZeroDivisionError()]
PATIENCE = 300.0  # seconds after which something hangs


@pytest.fixture(params=OUT_OF_MEMORY + OTHERS, ids=repr)
def error(request: pytest.FixtureRequest) -> Exception:
    """What a step raises: an object of this test's own, for errors keep frames."""
    raised: Exception = copy.copy(request.param)
    return raised


@pytest.fixture
def model(checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """Four slots, prompts in chunks, no end-of-sequence token."""
    directory = checkpoint("llama", max_position_embeddings=512)
    (directory / "tokenizer_config.json").unlink()
    config = core.LoadConfig(parallel_slots=4, options={"prefill_chunk": CHUNK})
    loaded = Cpu().load_model(directory, config)
    yield loaded
    within(loaded.close)


def within(work: Callable[[], T]) -> T:
    """What ``work`` returns; a failure if it does not end."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        pytest.fail("a caller hangs")
    return results[0]


def batch(model: MlxModel, prompts: Sequence[str]) -> list[core.BatchResult]:
    return within(lambda: model.batch_generate(prompts, SHORT))


def means_out_of_memory(error: Exception) -> bool:
    return repr(error) in map(repr, OUT_OF_MEMORY)


def assert_like(error: Exception | None, wanted: Exception) -> None:
    """Out of memory has an error of its own; others come as they are."""
    if means_out_of_memory(wanted):
        assert isinstance(error, core.OutOfMemoryError)
        assert "tokens" in str(error)
    else:
        assert type(error) is type(wanted)
        assert str(error) == str(wanted)
        assert error is not wanted


def fail_prefills(patch: Patch, mark: int, error: Exception, after: int) -> list[int]:
    """Prefills with a marked prompt fail behind ``after`` tokens; their numbers of rows."""
    real = Prefilling.step
    failed: list[int] = []

    def step(self: Prefilling, tokens: int) -> None:
        if self._done >= after and any(mark in job.ids for job in self.jobs):
            failed.append(self.rows)
            raise error
        real(self, tokens)

    patch.setattr(Prefilling, "step", step)
    return failed


@pytest.mark.parametrize("after", [0, 4], ids=["first chunk", "later chunk"])
@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "grouped"])
def test_a_prefill_that_fails_is_one_prompts_affair(
    model: MlxModel, monkeypatch: Patch, error: Exception, after: int, grouped: bool
) -> None:
    expected = batch(model, PROMPTS)
    mark = model.encode(MARK)[-1]
    failed = fail_prefills(monkeypatch, mark, error, after)
    if grouped:
        prompts = [*PROMPTS[:2], MARKED, *PROMPTS[2:]]
        rows = batch(model, prompts)
        assert max(failed) > 1
        assert failed[-1] == 1
        assert [*rows[:2], *rows[3:]] == expected
        assert_like(rows[2].error, error)
        assert rows[2].tokens == ()
    else:
        stream = model.generate(MARKED, SHORT)
        wanted = core.OutOfMemoryError if means_out_of_memory(error) else type(error)
        with pytest.raises(wanted) as raised:
            next(stream)
        assert_like(raised.value, error)
        assert stream.finish_reason == "error"
        assert failed == [1]
    monkeypatch.undo()
    assert batch(model, PROMPTS) == expected
    assert batch(model, [MARKED])[0].error is None


def test_a_decode_step_that_fails_ends_its_rows_and_no_others(
    model: MlxModel, monkeypatch: Patch, error: Exception
) -> None:
    prompts = [text + end for end in ("", " a", " b") for text in PROMPTS]  # the last eight wait
    expected = batch(model, prompts)
    real = DecodeBatch.step
    failed: list[Request] = []

    def step(self: DecodeBatch) -> None:
        if self.requests and not failed and max(r.drawn for r in self.requests) == 2:
            failed.extend(self.requests)
            raise error
        real(self)

    monkeypatch.setattr(DecodeBatch, "step", step)
    rows = batch(model, prompts)
    assert 1 <= len(failed) <= 4
    broken = [row for row in rows if row.error is not None]
    assert len(broken) == len(failed)
    for row, wanted in zip(rows, expected, strict=True):
        if row.error is None:
            assert row == wanted
        else:
            assert_like(row.error, error)
            assert row.tokens == wanted.tokens[: len(row.tokens)]
    assert len({id(row.error) for row in broken}) == len(broken)  # each thread raises its own
    assert batch(model, prompts) == expected


@pytest.mark.parametrize("where", ["checking", "merge", "drawing", "admission"])
def test_a_step_that_fails_anywhere_else_reaches_all_callers(
    model: MlxModel, monkeypatch: Patch, error: Exception, where: str
) -> None:
    expected = batch(model, PROMPTS)
    failed: list[str] = []
    places: dict[str, tuple[Any, str]] = {
        "checking": (CpuOps, "broken"),
        "merge": (BatchCache, "keep"),
        "drawing": (SamplingRows, "draw"),
        "admission": (engine, "Prefilling"),
    }
    owner, name = places[where]
    real = getattr(owner, name)

    def broken(*arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(where)
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, broken)
    rows = batch(model, PROMPTS)
    assert failed == [where]
    for row, wanted in zip(rows, expected, strict=True):
        if row.error is None:
            assert row == wanted
        else:
            assert_like(row.error, error)
    assert any(row.error is not None for row in rows)
    assert batch(model, PROMPTS) == expected


def test_text_that_fails_is_one_rows_affair(model: MlxModel, monkeypatch: Patch) -> None:
    expected = batch(model, PROMPTS)
    made: list[StreamDetokenizer] = []
    real = StreamDetokenizer.add

    def add(self: StreamDetokenizer, token_id: int) -> str:
        if not made and threading.current_thread().name.startswith("core-"):
            made.append(self)
        if self in made:
            raise ZeroDivisionError("text")
        return real(self, token_id)

    monkeypatch.setattr(StreamDetokenizer, "add", add)
    rows = batch(model, PROMPTS)
    errors = [row.error for row in rows]
    assert [type(error) for error in errors if error] == [ZeroDivisionError]
    for row, wanted in zip(rows, expected, strict=True):
        assert row.error is not None or row == wanted


def test_an_error_that_is_kept_holds_no_memory(
    model: MlxModel, monkeypatch: Patch, error: Exception
) -> None:
    batch(model, PROMPTS)
    gc.collect()
    before = mx.get_active_memory()
    real = Prefilling.step

    def step(self: Prefilling, tokens: int) -> None:
        real(self, tokens)
        held = mx.ones((1000, 1000))
        mx.eval(held)
        raise copy.copy(error)

    monkeypatch.setattr(Prefilling, "step", step)
    rows = batch(model, PROMPTS)
    gc.collect()
    assert all(row.error for row in rows)
    assert mx.get_active_memory() == before


def test_a_cancellation_that_is_kept_holds_no_memory(model: MlxModel) -> None:
    class Third:
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 2

    batch(model, PROMPTS)
    gc.collect()
    before = mx.get_active_memory()
    config = core.GenerateConfig(cancel=Third())
    rows = within(lambda: model.batch_generate(["ab " * 200], config))
    gc.collect()
    assert isinstance(rows[0].error, core.GenerationCancelled)
    assert mx.get_active_memory() == before


def test_an_error_says_where_it_came_from_and_whatever_it_is_can_be_raised() -> None:
    class Odd(Exception):
        def __init__(self, left: int, right: int) -> None:
            super().__init__(f"{left} {right}")

    for error, kind in ((ZeroDivisionError("z"), ZeroDivisionError), (SystemExit(3), RuntimeError)):
        try:
            raise error
        except BaseException as caught:  # noqa: BLE001
            own = of_request(caught, 3)
        assert type(own) is kind
        assert own.__traceback__ is None
        assert "test_an_error_says_where" in own.__notes__[0]
    assert str(of_request(Odd(1, 2), 3)) == "Odd: 1 2"
    closed = of_request(core.ModelClosedError(), 3)
    assert isinstance(closed, core.ModelClosedError)
    assert not hasattr(closed, "__notes__")
    assert isinstance(of_request(MemoryError(), 3), core.OutOfMemoryError)
    assert not is_out_of_memory(ValueError("not allocated"))


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("cublasLtCreate(&handle) failed with code: 3.", True),
        ("cublasLtMatmul(handle, desc) failed with code: 13.", False),  # it did not run
        ("cublasLtMatmul(handle, desc) failed with code: 31.", False),
        ("CUFFT plan failed with code: 3.", False),
        ("cudaMallocAsync(&data, size) failed: out of memory", True),
        ("[malloc] Unable to allocate 17 bytes.", True),
    ],
)
def test_cublas_says_by_a_number_that_memory_is_out(text: str, memory: bool) -> None:
    assert is_out_of_memory(RuntimeError(text)) == memory
