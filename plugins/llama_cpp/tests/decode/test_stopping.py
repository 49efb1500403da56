"""Calls that are stopped on their way: between two operations of a pass, by signals, in forks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core.errors import GenerationTimeout, ModelClosedError, PromptTooLongError
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.session import LlamaBatch, LlamaSession, SessionSettings
from core_llama_cpp.text.vocabulary import Vocabulary
from core_runtime.sequences.session import InterruptedPassError
from core_runtime.threads import interruptible

PATIENCE = 60.0  # against hangs; an answer comes at once
LONG = "ab " * 150
TinyGguf = Callable[..., Path]


def answers(model: LlamaModel) -> list[Any]:
    """Something of every operation that computes."""
    labelled = model.classify([LONG, f"{LONG}a", "b"], labels=["a", "bb", "ab a"])
    texts = model.batch_generate([LONG, "ab", "a b"], max_tokens=5)
    scores = model.score([LONG, f"{LONG}b"], [" b", " ab"])
    streamed = [token.id for token in model.generate(LONG, max_tokens=5)]
    return [
        [row.probabilities for row in labelled],
        [row.text for row in texts],
        [row.logprob for row in scores],
        streamed,
    ]


def settled(model: LlamaModel) -> tuple[int, int]:
    pool = model._passes._pool
    return model._owner.run(lambda: (pool.cells, pool.sequences))


def test_an_interrupted_pass_is_run_again(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, free = answers(tiny_model), settled(tiny_model)
    decode, ended = LlamaSession.decode, list[int]()

    def interrupted(session: LlamaSession, batch: LlamaBatch) -> None:
        if len(ended) % 2 == 0:  # each second attempt goes through
            session._stop[0] = b"\1"
        ended.append(batch._size)
        decode(session, batch)

    monkeypatch.setattr(LlamaSession, "decode", interrupted)
    assert answers(tiny_model) == expected
    assert settled(tiny_model) == free
    assert len(ended) > 10


def test_a_pass_ends_between_two_operations(tiny_model: LlamaModel) -> None:
    session = tiny_model._loaded.session

    def run() -> None:
        batch = session.new_batch()
        batch.add(tiny_model.encode("ab"), 0, 0, 1)
        session._stop[0] = b"\1"
        try:
            session.decode(batch)
        finally:
            session.drop(0)

    with pytest.raises(InterruptedPassError):
        tiny_model._owner.run(run)


def classify(model: LlamaModel) -> object:
    return model.classify([LONG, "ab"], timeout=0.2)[1].error


def score(model: LlamaModel) -> object:
    return model.score([LONG], [" b"], timeout=0.2)[0].error


def batch(model: LlamaModel) -> object:
    return model.batch_generate([LONG, "ab"], timeout=0.2)[1].error


def stream(model: LlamaModel) -> object:
    with pytest.raises(GenerationTimeout) as caught:
        list(model.generate(LONG, timeout=0.2))
    return caught.value


def each(model: LlamaModel) -> object:
    return next(iter(model.classify_iter([LONG], timeout=0.2))).error


def submitted(model: LlamaModel) -> object:
    with pytest.raises(GenerationTimeout) as caught:
        list(model.submit(LONG, core.GenerateConfig(timeout=0.2)))
    return caught.value


@pytest.mark.parametrize("call", [classify, score, batch, stream, each, submitted])
def test_a_pass_that_nobody_wants_is_interrupted(
    tiny_model: LlamaModel,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[LlamaModel], object],
) -> None:
    expected, free = answers(tiny_model), settled(tiny_model)
    stopped = endless(monkeypatch)
    assert isinstance(call(tiny_model), GenerationTimeout)
    assert stopped.wait(PATIENCE)
    monkeypatch.undo()
    assert answers(tiny_model) == expected
    assert settled(tiny_model) == free


def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Passes last until they are interrupted; the event says that one was."""
    decode, stopped = LlamaSession.decode, threading.Event()

    def lasting(session: LlamaSession, batch: LlamaBatch) -> None:
        session._computes = True
        for _ in range(int(PATIENCE * 100)):
            if session._stop[0] == b"\1":
                stopped.set()
                break
            threading.Event().wait(0.01)
        decode(session, batch)

    monkeypatch.setattr(LlamaSession, "decode", lasting)
    return stopped


def test_a_pass_goes_on_while_somebody_wants_it(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [token.id for token in tiny_model.generate("ab", max_tokens=3)]
    interrupts = list[int]()
    monkeypatch.setattr(LlamaSession, "interrupt", lambda session: interrupts.append(1))
    both = tiny_model.submit("ab", core.GenerateConfig(max_tokens=3))
    beside = tiny_model.submit("a b", core.GenerateConfig(max_tokens=3))
    tiny_model._engine._passing = (both._request, beside._request)  # type: ignore[attr-defined]
    beside.close()
    assert [token.id for token in both] == wanted


# ------------------------------------------------------------------ closing, and forks


def test_a_handler_closes_the_model_whose_tokenizer_it_interrupts(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, closed = tiny_model._loaded.session, list[bool]()
    tokenize = session.lib.llama_tokenize

    def handler(*_: object) -> None:
        tiny_model.close()
        closed.append(session._context is None)

    def interrupted(*arguments: Any) -> int:
        signal.raise_signal(signal.SIGUSR1)
        return int(tokenize(*arguments))

    monkeypatch.setattr(session.lib, "llama_tokenize", interrupted)
    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        assert tiny_model.encode("ab a")  # its answer is still good
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert closed == [False]  # somebody asked it
    assert session._context is None
    with pytest.raises(ModelClosedError):
        tiny_model.encode("ab")


def test_a_model_is_freed_by_the_last_one_who_asks(tiny_model: LlamaModel) -> None:
    vocabulary, freed = tiny_model._loaded.tokenizer.vocabulary, list[int]()
    beside = Vocabulary(tiny_model._loaded.session.lib, vocabulary._pointer)
    with beside._vocabulary():
        with beside._vocabulary():
            beside.close(lambda: freed.append(1))
        assert freed == []
    assert freed == [1]
    with pytest.raises(ModelClosedError):
        beside.tokenize("ab")
    assert freed == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_is_told_so_by_every_operation(
    tiny_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another thread of the parent tokenises."""
    within, over = threading.Event(), threading.Event()
    lib = tiny_model._loaded.session.lib
    tokenize = lib.llama_tokenize

    def waiting(*arguments: Any) -> int:
        within.set()
        over.wait(PATIENCE)
        return int(tokenize(*arguments))

    monkeypatch.setattr(lib, "llama_tokenize", waiting)
    thread = threading.Thread(target=tiny_model.encode, args=("ab",))
    thread.start()
    assert within.wait(PATIENCE)
    child = os.fork()
    if not child:
        os._exit(_refused(tiny_model))
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _refused(model: LlamaModel) -> int:
    signal.alarm(int(PATIENCE))
    calls: list[Callable[[], object]] = [
        lambda: model.encode("ab"),
        lambda: model.decode([5]),
        lambda: model.render_chat([core.Message("user", "ab")]),
        lambda: model.classify(["ab"]),
        lambda: model.generate("ab"),
        lambda: model.score(["ab"], ["a"]),
    ]
    for number, call in enumerate(calls, 1):
        try:
            call()
        except ModelClosedError:
            continue
        except BaseException:  # noqa: BLE001 - told by the exit code
            return number
        return number
    return 0


# ------------------------------------------------------------------ tokenising


TEXTS = (
    "ab",
    "  a  b ",
    "é½ü日本\n\t",
    "👩‍👩‍👧‍👦" * 9,
    "\0\x01" * 7,
    " " * 999,
    "!" * 500,
    "<s>ab</s>",
    LONG,
)


def test_a_text_has_no_fewer_tokens_than_its_bytes_say(
    tiny_model: LlamaModel, smollm2_model: LlamaModel, gemma3_model: LlamaModel
) -> None:
    for model in (tiny_model, smollm2_model, gemma3_model):
        vocabulary = model._loaded.tokenizer.vocabulary
        for text in TEXTS:
            assert 0 <= vocabulary.fewest_tokens(text) <= len(model.encode(text))
        assert vocabulary.fewest_tokens("ab" * 9999) > 9


def test_an_absurd_prompt_is_not_tokenised(
    smollm2_model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = smollm2_model._loaded.tokenizer.vocabulary
    monkeypatch.setattr(vocabulary, "tokenize", None)
    [row] = smollm2_model.classify(["word " * 10**6])
    assert isinstance(row.error, PromptTooLongError)
    assert "at least" in str(row.error)


# ------------------------------------------------------------------ loads


def test_what_is_made_for_nobody_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when an interrupt comes while a model is read."""
    undone, over = threading.Event(), threading.Event()

    def make(stop: threading.Event) -> str:
        assert over.wait(PATIENCE)
        assert stop.is_set()
        return "made"

    def interrupted(job: Callable[[], object], check: object) -> None:
        threading.Thread(target=job).start()
        raise KeyboardInterrupt

    monkeypatch.setattr("core_runtime.threads.outlasting", interrupted)
    with pytest.raises(KeyboardInterrupt):
        interruptible(make, lambda made: undone.set())
    over.set()
    assert undone.wait(PATIENCE)


def test_reading_ends_when_nobody_waits(tiny_gguf: TinyGguf) -> None:
    stop = threading.Event()
    stop.set()
    settings = SessionSettings(n_ctx=256, n_seq_max=2, n_batch=32, n_ubatch=32, n_threads=1)
    with pytest.raises(RuntimeError, match="could not load"):
        LlamaSession.open(tiny_gguf(), settings, stop)
