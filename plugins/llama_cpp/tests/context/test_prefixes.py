"""Prefixes kept between calls: nothing but time differs from a model that keeps none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import core
from core.errors import GenerationCancelled, InvalidOptionError
from core.types import Message
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.session import LlamaBatch, LlamaSession
from core_runtime.sequences import prefixes
from core_runtime.sequences.pool import Pool
from core_runtime.sequences.prefixes import KeptPrefixes, SharedPrefix
from core_runtime.sequences.session import DecodeError

LETTERS = "".join(map(chr, range(33, 127)))
TEMPLATE = "{% for message in messages %}{{ message.content | trim }}!{% endfor %}"
INSTRUCTION = "Decide!what!this!is!about:!a,!b!or!c.!"
SMALL = 20_000  # bytes: about two of the tiny model's prompts
TinyGguf = Callable[..., Path]
LoraGguf = Callable[..., Path]


class Opening(NamedTuple):
    """Opens models of one file, which are closed in the end."""

    path: Path
    stack: ExitStack

    def __call__(self, kept: int | None = None, **options: Any) -> LlamaModel:
        own = {"n_threads": 1} | ({} if kept is None else {"prefix_cache": kept})
        model = core.load_model(
            self.path, backend="llama_cpp", parallel_slots=2, options=own, **options
        )
        return cast("LlamaModel", self.stack.enter_context(model))


@pytest.fixture(params=["plain", "windowed"])
def opening(
    request: pytest.FixtureRequest, tiny_gguf: TinyGguf, windowed_gguf: Path
) -> Iterator[Opening]:
    """Both tiny models: layers that see everything, and one that sees the last 24 tokens."""
    with ExitStack() as stack:
        plain = tiny_gguf(change={"tokenizer.chat_template": TEMPLATE})
        yield Opening(plain if request.param == "plain" else windowed_gguf, stack)


@pytest.fixture
def plain(tiny_gguf: TinyGguf) -> Iterator[Opening]:
    with ExitStack() as stack:
        yield Opening(tiny_gguf(), stack)


@pytest.fixture
def windowed(windowed_gguf: Path) -> Iterator[Opening]:
    with ExitStack() as stack:
        yield Opening(windowed_gguf, stack)


def kept_of(model: LlamaModel) -> KeptPrefixes:
    return model._loaded.prefixes


def held(model: LlamaModel) -> int:
    """Bytes that are kept, when what has ended is."""
    return model._owner.run(lambda: kept_of(model).used)


def assert_whole(model: LlamaModel) -> None:
    """All cells and sequences are free, and none of them holds anything."""
    pool, session = model._passes._pool, model._loaded.session

    def left() -> tuple[int, int, list[int]]:
        held = [number for number in range(session.settings.n_seq_max) if session.end(number)]
        return pool.cells, pool.sequences, held

    assert model._owner.run(left) == (pool.size, session.settings.n_seq_max, [])


def logits(model: LlamaModel, prompts: Sequence[str]) -> list[Any]:
    results = model.classify(prompts, return_logits=True)
    assert [result.error for result in results] == [None] * len(results)
    return [np.array(result.logits) for result in results]


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Float32 products differ by their last bits with the number of rows beside them."""
    return np.allclose(one, other, rtol=0, atol=1e-5)


def drawn(model: LlamaModel, prompt: str, count: int) -> list[tuple[int, float | None]]:
    stream = model.generate(prompt, max_tokens=count, temperature=0.0, return_logprobs=True)
    return [(token.id, token.logprob) for token in stream]


# ------------------------------------------------------------------ what is found


def test_one_prompt_a_call_computes_only_what_is_new(plain: Opening) -> None:
    cold, model = plain(kept=0), plain()
    prompts = [INSTRUCTION + tail for tail in ("ab!cd", "x", "!y!z", "ab!cd")]
    cached = []
    for prompt in prompts:
        assert same(logits(model, [prompt]), logits(cold, [prompt]))
        cached.append(model.metrics.cached_prompt_tokens)
        assert cold.metrics.cached_prompt_tokens == 0
    shared = len(model.encode(INSTRUCTION))
    assert cached == [0, 0, shared, shared]
    assert len(kept_of(model)._store) == 1  # what is new of each prompt is not kept
    assert held(cold) == 0
    assert_whole(model)


def test_what_a_call_shares_serves_one_row_of_the_next(plain: Opening) -> None:
    model = plain()
    model.classify([INSTRUCTION + tail for tail in "abc"])
    model.classify([INSTRUCTION + "d"])
    assert model.metrics.cached_prompt_tokens == len(model.encode(INSTRUCTION))
    model.score([INSTRUCTION + "e"], ["f"])
    assert model.metrics.cached_prompt_tokens == len(model.encode(INSTRUCTION))
    list(model.generate(INSTRUCTION + "g", max_tokens=3))
    assert model.metrics.cached_prompt_tokens == len(model.encode(INSTRUCTION))
    model.batch_generate([INSTRUCTION + "h", "!" * 40], max_tokens=3)
    assert model.metrics.cached_prompt_tokens == len(model.encode(INSTRUCTION))


def test_rows_that_begin_otherwise_run_without(plain: Opening) -> None:
    """One of two rows begins as prompts before did; nothing is worth a pass that both share."""
    cold, model = plain(kept=0), plain()
    drawn(model, INSTRUCTION, 3)
    other = INSTRUCTION[:20] + "~" * 40
    for rows in ([INSTRUCTION + "a", other], [INSTRUCTION + "b", "~" * 60]):
        assert same(logits(model, rows), logits(cold, rows))
        assert model.metrics.cached_prompt_tokens >= len(model.encode(INSTRUCTION))
    assert_whole(model)


def test_what_is_short_is_computed(plain: Opening) -> None:
    model = plain()
    for tail in "abcd":
        model.classify(["Fifteen!letters" + tail])
        assert model.metrics.cached_prompt_tokens == 0
    assert held(model) == 0


@pytest.mark.parametrize("first", [20, 60])  # within the window, and beyond it
def test_a_conversation_goes_on_where_it_was(opening: Opening, first: int) -> None:
    cold, model = opening(kept=0), opening()
    prompt = LETTERS[:first]
    for turn in ("and", "so", "on"):
        [answer] = model.generate_tokens([model.encode(prompt)], max_tokens=12)
        [wanted] = cold.generate_tokens([cold.encode(prompt)], max_tokens=12)
        assert answer.ids == wanted.ids
        ids = [*answer.ids, *model.encode(turn)]
        assert same(continued(model, ids), continued(cold, ids))
        assert model.metrics.cached_prompt_tokens == len(answer.ids) - 1  # the last one was not fed
        prompt = model.decode(ids)
    assert_whole(model)


def continued(model: LlamaModel, ids: Sequence[int]) -> list[float]:
    """Tokens that follow these, and their log-probabilities."""
    [row] = model.generate_tokens([ids], max_tokens=6, return_logprobs=True, temperature=0.0)
    return [*row.ids, *row.logprobs]


def test_an_answer_that_was_changed_is_cut_off(opening: Opening) -> None:
    """With a window, what is behind the prompt cannot be cut: the prompt's own end is kept too."""
    cold, model = opening(kept=0), opening()
    prompt = model.encode(LETTERS[:60])
    [answer] = model.generate_tokens([prompt], max_tokens=12)
    changed = [*answer.ids[: len(prompt) + 6], *model.encode("no")]
    assert same(continued(model, changed), continued(cold, changed))
    is_windowed = model._loaded.session.exceeds_window(10**6)
    assert model.metrics.cached_prompt_tokens == len(prompt) + (0 if is_windowed else 6)


def test_a_window_that_is_gone_is_not_used(windowed: Opening) -> None:
    cold, model = windowed(kept=0), windowed()
    drawn(model, LETTERS[:80], 4)
    for size in (20, 50, 78):
        prompt = LETTERS[:size] + "ab"
        assert same(logits(model, [prompt]), logits(cold, [prompt]))
    drawn(model, LETTERS[:20], 3)  # all of it within the window: it may be cut anywhere
    model.classify([LETTERS[:18] + "!!"])
    assert model.metrics.cached_prompt_tokens == 18


def test_the_second_turn_of_a_chat(smollm2_model: LlamaModel) -> None:
    turns = [Message("system", "You answer in one short sentence."), Message("user", "Say hi.")]
    answer = "".join(token.text for token in smollm2_model.chat(turns, max_tokens=12))
    first = smollm2_model.encode(smollm2_model.render_chat(turns))
    turns += [Message("assistant", answer), Message("user", "And again?")]
    second = smollm2_model.encode(smollm2_model.render_chat(turns))
    stream = smollm2_model.chat(turns, max_tokens=4, temperature=0.0)
    found = [token.id for token in stream]
    assert len(first) <= stream.metrics.cached_prompt_tokens < len(second)
    smollm2_model._owner.run(kept_of(smollm2_model).clear)
    assert found == [token.id for token in smollm2_model.chat(turns, max_tokens=4, temperature=0.0)]


# ------------------------------------------------------------------ what is not kept


def test_nothing_is_kept_of_a_sequence_that_lost_its_beginning(plain: Opening) -> None:
    options: dict[str, Any] = {"context_len": 256, "context_overflow": "rotate"}
    cold, model = plain(kept=0, **options), plain(**options)
    list(model.generate(LETTERS[:90], max_tokens=200))
    assert held(model) == 0
    prompt = LETTERS[:80]
    assert same(drawn(model, prompt, 4), drawn(cold, prompt, 4))
    assert_whole(model)


def test_of_rows_side_by_side_a_gpu_is_not_read(plain: Opening) -> None:
    model = plain()
    model._loaded.session.caches_lone_rows_only = True
    model.batch_generate([LETTERS[:40], LETTERS[20:60]], max_tokens=3, temperature=0.0)
    assert held(model) == 0
    drawn(model, LETTERS[:40], 3)
    assert held(model) > 0


def test_nothing_is_kept_of_what_failed(plain: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    cold, model = plain(kept=0), plain()
    prompts = [INSTRUCTION + letter for letter in "abcd"]
    wanted = [logits(cold, [prompt]) for prompt in prompts]
    decode, calls = LlamaSession.decode, list[int]()

    def failing(session: LlamaSession, batch: LlamaBatch) -> None:
        decode(session, batch)  # the cache is filled
        calls.append(1)
        if len(calls) % 2:
            raise DecodeError("each second time")

    monkeypatch.setattr(LlamaSession, "decode", failing)
    for prompt in prompts * 2:
        model.classify([prompt])
        list(model.batch_generate([prompt], max_tokens=3))
        assert_whole(model)
    monkeypatch.undo()
    assert all(
        same(logits(model, [prompt]), row) for prompt, row in zip(prompts, wanted, strict=True)
    )


def test_a_beginning_of_a_lone_prompt_that_fails_is_done_without(
    plain: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold, model = plain(kept=0), plain()
    logits(model, [INSTRUCTION + "a"])

    def failing(*_: object) -> None:
        raise DecodeError("no")

    monkeypatch.setattr(SharedPrefix, "_compute", failing)
    monkeypatch.setattr(SharedPrefix, "computed", 0, raising=False)
    assert same(logits(model, [INSTRUCTION + "b"]), logits(cold, [INSTRUCTION + "b"]))
    assert model.metrics.cached_prompt_tokens == 0


def test_a_copy_that_llama_does_not_take_back(
    plain: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold, model = plain(kept=0), plain()
    list(model.generate(INSTRUCTION, max_tokens=4))
    restore = LlamaSession.restore

    def refused(session: LlamaSession, state: Any, sequence: int) -> bool:
        restore(session, state, sequence)
        return False

    monkeypatch.setattr(LlamaSession, "restore", refused)
    assert same(drawn(model, INSTRUCTION + "a", 4), drawn(cold, INSTRUCTION + "a", 4))
    assert model.metrics.cached_prompt_tokens == 0
    assert_whole(model)


def test_a_copy_takes_no_cells_that_others_have(plain: Opening) -> None:
    model = plain()
    list(model.generate(INSTRUCTION, max_tokens=20))
    ids = model.encode(INSTRUCTION)

    def restored(free: int) -> int:
        pool = Pool(len(ids) + free, 1)
        lease = pool.take(len(ids), 1)
        found = kept_of(model).restore(ids, len(ids) - 1, lease, pool)
        model._loaded.session.drop(lease.sequences[0])
        return found

    assert model._owner.run(lambda: restored(18)) == 0
    assert model._owner.run(lambda: restored(19)) == len(ids) - 1  # of 19 tokens that were fed


# ------------------------------------------------------------------ bounds


def test_no_more_is_kept_than_asked_for(plain: Opening) -> None:
    model = plain(kept=SMALL)
    for start in range(8):
        list(model.generate(LETTERS[start : start + 40], max_tokens=4))
        assert 0 < held(model) <= SMALL
    before = held(model)
    list(model.generate("!" * 400, max_tokens=4))  # alone it is more than all
    assert held(model) == before
    memory = model._loaded.memory()
    assert memory.active == model._loaded.held_bytes + before
    assert memory.peak >= memory.active


def test_the_option_has_a_reason(plain: Opening) -> None:
    chosen = {choice.name: choice for choice in plain().choices()}
    assert "recent" in chosen["prefix_cache"].reason
    none = {choice.name: choice for choice in plain(kept=0).choices()}
    assert (none["prefix_cache"].value, none["prefix_cache"].reason) == ("0", "asked for")
    with pytest.raises(InvalidOptionError, match="prefix_cache"):
        plain(kept=-1)


def test_what_is_kept_gives_way_where_memory_is_short(
    plain: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = plain()
    list(model.generate(LETTERS[:40], max_tokens=4))
    before = held(model)
    assert before
    monkeypatch.setattr(prefixes, "available_bytes", lambda: 2 * before)
    list(model.generate(LETTERS[40:80], max_tokens=4))
    assert model._owner.run(lambda: len(kept_of(model)._store)) == 1  # the first one is gone
    model.classify([LETTERS[40:80] + "!"])
    assert model.metrics.cached_prompt_tokens == len(model.encode(LETTERS[40:80]))
    monkeypatch.setattr(prefixes, "available_bytes", lambda: 0)
    list(model.generate(LETTERS[20:60], max_tokens=4))
    assert held(model) == 0
    monkeypatch.setattr(prefixes, "available_bytes", lambda: None)
    list(model.generate(LETTERS[20:60], max_tokens=4))
    assert held(model) > 0


def test_closing_drops_what_is_kept(tiny_gguf: TinyGguf) -> None:
    opened = core.load_model(tiny_gguf(), backend="llama_cpp", options={"n_threads": 1})
    model = cast("LlamaModel", opened)
    list(model.generate(INSTRUCTION, max_tokens=4))
    kept = kept_of(model)
    assert held(model)
    model.close()
    assert kept.used == 0


# ------------------------------------------------------------------ everything at once


Job = tuple[str, str, int]


def jobs(random: Random, count: int) -> list[Job]:
    """Calls on prompts that have from one token to all of them in common."""
    trunk = "".join(random.choices(LETTERS, k=120))
    found = []
    for _ in range(count):
        prompt = trunk[: random.randint(1, 120)] + "".join(random.choices(LETTERS, k=4))
        kind = random.choice(["classify", "two", "score", "generate", "chat", "batch"])
        found.append((kind, prompt, random.randint(1, 12)))
    return found


def answer(model: LlamaModel, job: Job) -> list[float]:
    """Numbers of one call, whatever it is."""
    kind, prompt, count = job
    tail = prompt[-count:]
    if kind == "classify":
        return list(logits(model, [prompt])[0])
    if kind == "two":
        labelled = model.classify([prompt, prompt[:-2]], labels=["a!b", "a!c", "d"])
        return [chance for row in labelled for chance in (row.probabilities or {}).values()]
    if kind == "score":
        return [value for row in model.score([prompt], [tail]) for value in row.token_logprobs]
    if kind == "chat":
        messages = [Message("user", prompt), Message("assistant", tail), Message("user", "b")]
        return [token.id for token in model.chat(messages, max_tokens=count, temperature=0.0)]
    if kind == "batch":
        rows = model.batch_generate([prompt, prompt + "a"], max_tokens=count, temperature=0.0)
        return [float(token.id) for row in rows for token in row.tokens]
    return [float(value or 0) for pair in drawn(model, prompt, count) for value in pair]


@pytest.mark.parametrize(
    ("bound", "adapted"),
    [(SMALL, False), (None, False), (SMALL, True)],
    ids=["evicting", "keeping", "adapted"],
)
def test_what_was_called_before_changes_nothing(
    opening: Opening, lora_gguf: LoraGguf, bound: int | None, adapted: bool
) -> None:
    is_windowed = "windowed" in opening.path.name
    lora = lora_gguf(architecture="gemma3" if is_windowed else "llama") if adapted else None
    options = {"adapter_path": lora} if adapted else {}
    cold, model = opening(kept=0, **options), opening(kept=bound, **options)
    cached = 0
    for job in jobs(Random(17), 30):
        assert answer(model, job) == pytest.approx(answer(cold, job), abs=1e-5), job
        cached += model.metrics.cached_prompt_tokens
        assert held(model) <= (bound or 10**9)
    assert cached > 200
    assert_whole(model)


def test_an_adapter_has_prefixes_of_its_own(plain: Opening, lora_gguf: LoraGguf) -> None:
    bare, adapted = plain(), plain(adapter_path=lora_gguf())
    prompts = [INSTRUCTION + letter for letter in "abc"]
    both = [(logits(bare, [prompt]), logits(adapted, [prompt])) for prompt in prompts]
    assert adapted.metrics.cached_prompt_tokens == bare.metrics.cached_prompt_tokens > 0
    assert np.abs(np.array(both[2][0]) - np.array(both[2][1])).max() > 1e-3
    assert same(both[2][1], logits(plain(kept=0, adapter_path=lora_gguf()), prompts[2:]))


def test_threads_and_models_do_not_mix(tiny_gguf: TinyGguf, windowed_gguf: Path) -> None:
    with ExitStack() as stack:
        plain = tiny_gguf(change={"tokenizer.chat_template": TEMPLATE})
        openings = [Opening(plain, stack), Opening(windowed_gguf, stack)]
        colds, models = [one(kept=0) for one in openings], [one(kept=SMALL) for one in openings]
        work = [jobs(Random(seed), 12) for seed in range(3)]
        wanted = [[[answer(cold, job) for job in some] for some in work] for cold in colds]
        found: dict[tuple[int, int], list[list[float]]] = {}

        def run(place: int, turn: int) -> None:
            found[place, turn] = [answer(models[place], job) for job in work[turn]]

        pairs = [(place, turn) for place in range(2) for turn in range(3)]
        threads = [threading.Thread(target=run, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for place, turn in pairs:
            for job, one, other in zip(
                work[turn], found[place, turn], wanted[place][turn], strict=True
            ):
                assert one == pytest.approx(other, abs=2e-3), job
        for model in models:
            assert_whole(model)


def test_a_pass_that_is_cancelled_leaves_nothing_wrong(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted at every third pass, between two operations, and given up at some of them."""
    cold, model = opening(kept=0), opening(kept=SMALL)
    decode, count = LlamaSession.decode, [0]

    def interrupted(session: LlamaSession, batch: LlamaBatch) -> None:
        count[0] += 1
        if session is model._loaded.session and count[0] % 3 == 0:
            session._stop[0] = b"\1"
        decode(session, batch)

    class Soon:
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 3

    monkeypatch.setattr(LlamaSession, "decode", interrupted)
    for job in jobs(Random(5), 15):
        prompt = job[1] * 2
        [row] = model.classify([prompt], cancel=Soon())
        assert row.error is None or isinstance(row.error, GenerationCancelled)
        with suppress(GenerationCancelled):
            list(model.generate(prompt, max_tokens=60, cancel=Soon()))
        assert answer(model, job) == pytest.approx(answer(cold, job), abs=1e-5), job
        assert_whole(model)
