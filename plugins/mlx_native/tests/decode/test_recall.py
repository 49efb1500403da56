"""Prompts that begin like earlier ones, or go on behind an answer, against a model without memory.

Everything that reads prompts is mixed here, for all of it shares one store.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import prefixes
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.decode.prefilling import Prefilling
from core_mlx_native.model import MlxModel
from core_mlx_native.network import prefill
from core_mlx_native.network.decoder import Decoder

Checkpoint = Callable[..., Path]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")
WINDOW = 8
CONTEXT = 256
TOLERANCE = 1e-5
LETTERS = "defghijk"  # a token each


@pytest.fixture(autouse=True)
def any_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token is worth it: the tests are about what is right, not about what pays."""
    monkeypatch.setattr(prefixes, "_WORTH", 1)
    real = MlxEngine.__init__

    def init(self: MlxEngine, *given: Any) -> None:
        real(self, *given)
        self._recall.worth = 1

    monkeypatch.setattr(MlxEngine, "__init__", init)


def opened(directory: Path, kept: int | None = None, **load: Any) -> MlxModel:
    options = {"prefill_chunk": 8, **load.pop("options", {})}
    if kept is not None:
        options["prefix_cache"] = kept
    return Cpu().load_model(directory, core.LoadConfig(parallel_slots=3, options=options, **load))


@pytest.fixture
def directory(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Path:
    """Windows and a norm behind each part, unless the test asks for a family."""
    return checkpoint(getattr(request, "param", "gemma3"), max_position_embeddings=CONTEXT)


@pytest.fixture
def model(directory: Path) -> Iterator[MlxModel]:
    with opened(directory) as model:
        yield model


@pytest.fixture
def cold(directory: Path) -> Iterator[MlxModel]:
    with opened(directory, kept=0) as model:
        yield model


def letters(dice: random.Random, least: int = 1, most: int = 3 * WINDOW) -> str:
    return "".join(dice.choices(LETTERS, k=dice.randint(least, most)))


Answer = list[tuple[int, float]]


def same(found: Answer, wanted: Answer) -> None:
    assert [token for token, _ in found] == [token for token, _ in wanted]
    for (_, one), (_, other) in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, abs=TOLERANCE)


def told(tokens: Any) -> Answer:
    return [(token.id, token.logprob) for token in tokens]


def generated(model: MlxModel, prompt: str, **options: Any) -> Answer:
    return told(model.generate(prompt, **{"max_tokens": 6, "return_logprobs": True, **options}))


def kept(model: MlxModel) -> int:
    """The bytes that are kept, once the model's thread is done with what it was given."""
    model.memory()
    return model._loaded.prefixes.used


def batched(model: MlxModel, prompts: list[str], **options: Any) -> list[Answer]:
    options = {"max_tokens": 6, "return_logprobs": True, **options}
    results = model.batch_generate(prompts, **options)
    assert [result.error for result in results] == [None] * len(prompts)
    return [told(result.tokens) for result in results]


# ------------------------------------------------------------------------- conversations


@pytest.mark.parametrize("directory", FAMILIES, indirect=True)
def test_the_second_turn_prefills_only_what_is_new(
    model: MlxModel, cold: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than every window, at its end and one window behind it."""
    computed: list[int] = []
    step = Prefilling.step

    def counted(group: Prefilling, tokens: int) -> None:
        before = group._done
        step(group, tokens)
        computed.append(group._done - before)

    text, ids = letters(random.Random(0), 50, 50), 0
    for turn in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(Prefilling, "step", counted)
            found = generated(model, text, max_tokens=20)
        same(found, generated(cold, text, max_tokens=20))
        answer = "".join(model._loaded.tokenizer.token_text(token) for token, _ in found)
        prompt = len(model.encode(text))
        assert model.metrics.cached_prompt_tokens == prompt - sum(computed)
        assert cold.metrics.cached_prompt_tokens == 0
        if turn:
            assert sum(computed) <= prompt - ids + 1  # the last drawn token is not fed
        ids = len(model.encode(text + answer))
        if [token for token, _ in found] != model.encode(text + answer)[prompt:]:
            ids = prompt  # the answer has other tokens as text
        text += answer + letters(random.Random(turn), 9, 9)
        computed.clear()


def test_the_same_prompt_again_reads_its_last_token(model: MlxModel, cold: MlxModel) -> None:
    text = letters(random.Random(1), 60, 60)
    for tokens in (1, 5, 5):
        same(generated(model, text, max_tokens=tokens), generated(cold, text, max_tokens=tokens))
    assert model.metrics.cached_prompt_tokens == 59


def test_a_shorter_beginning_than_the_window_has_kept_is_not_used(
    model: MlxModel, cold: MlxModel
) -> None:
    text = letters(random.Random(2), 100, 100)
    generated(model, text)
    for shared in (99, 90, 84, 83, 40):  # a window's columns are kept from position 77 on
        other = text[:shared] + "~" * 3
        same(generated(model, other), generated(cold, other))
        assert (model.metrics.cached_prompt_tokens == shared) == (shared >= 84)


def test_what_is_computed_behind_a_window_lacks_what_the_window_lacks(
    model: MlxModel, cold: MlxModel
) -> None:
    dice = random.Random(8)
    text = letters(dice, 100, 100)
    generated(model, text)
    longer = [text[:97] + "~" * 20 + letter for letter in LETTERS]
    for prompts in (longer, [text[:60] + "~"]):
        found = model.classify(prompts, labels=("d", "ef"), label_prefix="")
        wanted = cold.classify(prompts, labels=("d", "ef"), label_prefix="")
        for one, other in zip(found, wanted, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)
    assert model.metrics.cached_prompt_tokens == 0


def test_samples_and_penalties_are_those_of_a_cold_model(model: MlxModel, cold: MlxModel) -> None:
    dice = random.Random(3)
    head = letters(dice, 30, 30)
    options = core.GenerateConfig(temperature=1.2, repeat_penalty=1.5, seed=5, max_tokens=6)
    for _ in range(3):
        ids = model.encode(head + letters(dice))
        found = model.generate_tokens([ids], options, num_samples=3)
        wanted = cold.generate_tokens([ids], options, num_samples=3)
        assert found == wanted
    assert model.metrics.cached_prompt_tokens >= 30 - 1


# ------------------------------------------------------------------------- side by side


@pytest.fixture
def read_tokens(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each pass over prompts has: those of a group, or of a shared beginning."""
    sizes: list[int] = []
    step, run = Prefilling.step, prefill.run_prefix

    def stepped(group: Prefilling, tokens: int) -> None:
        before = group._done
        step(group, tokens)
        sizes.append((group._done - before) * group.rows)

    def ran(decoder: Any, ids: Any, fast: Any, between: Any, behind: Any) -> Any:
        sizes.append(len(ids) - behind.size)
        return run(decoder, ids, fast, between, behind)

    monkeypatch.setattr(Prefilling, "step", stepped)
    monkeypatch.setattr("core_mlx_native.decode.engine.run_prefix", ran)
    return sizes


WHOLE: dict[str, Any] = {"prefill_chunk": 64}


@pytest.mark.parametrize("directory", FAMILIES, indirect=True)
def test_rows_that_wait_side_by_side_share_what_they_begin_with(
    directory: Path, cold: MlxModel, read_tokens: list[int]
) -> None:
    """Longer than every window; a row that begins otherwise is among them."""
    dice = random.Random(8)
    head = letters(dice, 40, 40)
    texts = [head + end for end in ("~de", "!", "~d")]
    with opened(directory, options=WHOLE) as model:
        ids = [len(model.encode(text)) for text in texts]
        wanted = [generated(cold, text) for text in texts]
        read_tokens.clear()
        for found, want in zip(batched(model, texts), wanted, strict=True):
            same(found, want)
        assert read_tokens == [40, 3 * 3]  # tails, to the longest one's length
        assert model.metrics.prompt_tokens == sum(ids)
        assert model.metrics.cached_prompt_tokens == sum(ids) - (40 + 3 * 3)

        # The next ones find it, and a row of another kind does not mind.
        others = [head + "?", letters(dice, 9, 9) + "~", head + "??"]
        wanted = [generated(cold, text) for text in others]
        read_tokens.clear()
        for found, want in zip(batched(model, others), wanted, strict=True):
            same(found, want)
        assert sum(read_tokens) < 40


@pytest.mark.parametrize("directory", FAMILIES, indirect=True)
def test_what_rows_share_goes_on_behind_what_is_kept(
    directory: Path, cold: MlxModel, read_tokens: list[int]
) -> None:
    """Of a prompt longer than the windows its end alone is kept; what is shared lacks the rest."""
    head = letters(random.Random(13), 60, 60)
    texts = [head + LETTERS * 2 + end for end in ("~de", "!", "~d")]
    with opened(directory, options=WHOLE | {"prefill_chunk": 128}) as model:
        generated(model, head, max_tokens=1)
        for _ in range(2):
            wanted = [generated(cold, text) for text in texts]
            read_tokens.clear()
            for found, want in zip(batched(model, texts), wanted, strict=True):
                same(found, want)
            assert read_tokens[0] == 16  # behind the head
            texts = [text[:76] + LETTERS * 2 + text[76:] for text in texts]


def test_samples_of_equal_prompts_are_drawn_behind_one_prefill(
    directory: Path, read_tokens: list[int]
) -> None:
    """Without a seed each draws for itself; all but its last token is read once for them."""
    with opened(directory, options=WHOLE) as model:
        text = letters(random.Random(9), 40, 40)
        rows = model.batch_generate([text] * 3, max_tokens=20, temperature=2.0)
        assert len({row.tokens for row in rows}) == 3
        assert read_tokens == [39, 3]
        assert model.metrics.cached_prompt_tokens == 39 * 2


def test_a_chunk_is_the_most_that_is_shared(directory: Path, read_tokens: list[int]) -> None:
    """A pass of its own holds up the rows that decode, as a chunk does."""
    with opened(directory, options={"prefill_chunk": 16}) as model:
        text = letters(random.Random(10), 40, 40)
        model.batch_generate([text + end for end in "!?~"], max_tokens=2)
        assert read_tokens[0] == 16
        assert max(read_tokens) <= 18  # of three rows


def test_several_beginnings_take_a_chunk_together(
    checkpoint: Checkpoint, read_tokens: list[int]
) -> None:
    """Of four prompts two and two begin alike: one of the beginnings is shared now."""
    heads = [letters(random.Random(seed), 20, 20) for seed in (11, 12)]
    config = core.LoadConfig(parallel_slots=4, options={"prefill_chunk": 24})
    with Cpu().load_model(checkpoint(max_position_embeddings=CONTEXT), config) as model:
        model.batch_generate([head + end for head in heads for end in "!?"], max_tokens=2)
    assert read_tokens[0] == 20
    assert max(read_tokens[1:]) <= 24
    assert 20 not in read_tokens[1:]


@pytest.mark.parametrize("options", [{"prefix_cache": 0}, {"without": ["prefix"]}], ids=str)
def test_nothing_is_shared_where_that_is_off(
    directory: Path, options: dict[str, Any], read_tokens: list[int]
) -> None:
    with opened(directory, options={**WHOLE, **options}) as model:
        model.batch_generate([LETTERS * 5 + end for end in "!?~"], max_tokens=2)
        assert sum(read_tokens) == 41 * 3
        assert model.metrics.cached_prompt_tokens == 0


@pytest.mark.parametrize("error", ["[malloc] Unable to allocate 12 bytes.", "a kernel failed"])
def test_a_shared_pass_that_fails_leaves_each_to_itself(
    model: MlxModel, cold: MlxModel, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError(error)

    monkeypatch.setattr("core_mlx_native.decode.engine.run_prefix", fails)
    texts = [LETTERS * 5 + end for end in "!?~"]
    for found, want in zip(batched(model, texts), batched(cold, texts), strict=True):
        same(found, want)
    assert model.metrics.cached_prompt_tokens == 0


def test_a_cancel_ends_the_shared_pass(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel = threading.Event()
    real: Callable[..., Any] = Decoder.__call__
    layers: list[int] = []

    def cancelling(self: Decoder, *given: Any) -> Any:
        *rest, between = given

        def looked() -> None:
            between()
            layers.append(1)

        cancel.set()
        return real(self, *rest, looked)

    with opened(directory, options=WHOLE) as model:
        monkeypatch.setattr(Decoder, "__call__", cancelling)
        rows = model.batch_generate([LETTERS * 5 + end for end in "!?~"], cancel=cancel)
        assert [type(row.error) for row in rows] == [core.GenerationCancelled] * 3
        assert not layers
        monkeypatch.undo()
        assert model.batch_generate(["de", "df"], max_tokens=2)[0].error is None


# ------------------------------------------------------------------------- attacks


@pytest.mark.parametrize(
    ("directory", "size"),
    [*((family, None) for family in FAMILIES), ("gemma3", 60_000), ("mistral", 60_000)],
    indirect=["directory"],
)
def test_whatever_shares_with_whatever(directory: Path, cold: MlxModel, size: int | None) -> None:
    """Any number of tokens, ragged batches of hits and misses, and all kinds of calls."""
    dice = random.Random(4)
    seen = ["k" * 70]
    cached = 0

    def text() -> str:
        return dice.choice(seen)[: dice.randint(1, 80)] + letters(dice, 0, 2 * WINDOW)

    with opened(directory, size) as model:
        for _ in range(4):
            texts = [text() for _ in range(dice.choice([1, 2, 4]))]
            for one, other in zip(batched(model, texts), batched(cold, texts), strict=True):
                same(one, other)
            cached += model.metrics.cached_prompt_tokens
            long = text()
            same(generated(model, long, max_tokens=20), generated(cold, long, max_tokens=20))
            cached += model.metrics.cached_prompt_tokens

            prompt = text()
            [found] = model.classify([prompt], labels=("d", "ef"), label_prefix="")
            [wanted] = cold.classify([prompt], labels=("d", "ef"), label_prefix="")
            assert found.logprobs == pytest.approx(wanted.logprobs, abs=TOLERANCE)
            cached += model.metrics.cached_prompt_tokens
            [scored], [known] = model.score([prompt], ["de"]), cold.score([prompt], ["de"])
            assert scored.logprob == pytest.approx(known.logprob, abs=TOLERANCE)
            seen += [*texts, long, prompt]
            assert model._loaded.prefixes.used <= (size or 2**30)
    assert cached > 30


def test_a_context_that_rotates(directory: Path) -> None:
    dice = random.Random(5)
    head = letters(dice, 20, 20)
    load: dict[str, Any] = {"context_len": 32, "context_overflow": "rotate"}
    with opened(directory, **load) as model, opened(directory, 0, **load) as cold:
        for length in (20, 31, 32, 32):
            text = (head + letters(dice, 12, 12))[:length]
            same(generated(model, text, max_tokens=40), generated(cold, text, max_tokens=40))
            [found], [wanted] = model.classify([text]), cold.classify([text])
            assert found.token == wanted.token


def test_threads_that_cancel_and_ask_again(directory: Path, cold: MlxModel) -> None:
    heads = [letters(random.Random(seed), 40, 40) for seed in range(2)]
    asked = [heads[i % 2][: 10 + 3 * i] + letters(random.Random(i), 5, 5) for i in range(6)]
    wanted = {text: generated(cold, text) for text in asked}
    failures: list[BaseException] = []

    def work(model: MlxModel, seed: int) -> None:
        dice = random.Random(seed)
        try:
            for text in dice.sample(asked, 4):
                if dice.random() < 0.4:
                    stream = model.generate(text, max_tokens=50)
                    list(islice(stream, dice.randint(0, 5)))
                    stream.close()
                same(generated(model, text), wanted[text])
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    with opened(directory, 200_000) as model:
        threads = [threading.Thread(target=work, args=(model, seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


# ------------------------------------------------------------------------- failures and memory


def test_a_failing_pass_leaves_what_is_kept_as_it_was(
    model: MlxModel, cold: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = letters(random.Random(6), 40, 40)
    generated(model, text)
    real, held = Prefilling.step, kept(model)

    def fails(group: Prefilling, tokens: int) -> None:
        real(group, tokens)
        raise RuntimeError("a kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr(Prefilling, "step", fails)
        with pytest.raises(RuntimeError, match="kernel"):
            generated(model, text + "d")
    assert kept(model) == held
    same(generated(model, text + "e"), generated(cold, text + "e"))
    assert model.metrics.cached_prompt_tokens == 40


def test_out_of_memory_what_is_kept_goes_and_prompts_are_tried_together(
    model: MlxModel, cold: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    real = Prefilling.step

    def scarce(group: Prefilling, tokens: int) -> None:
        rows.append(group.rows)
        if model._loaded.prefixes.used:
            raise RuntimeError("[malloc_or_wait] Unable to allocate 12 bytes.")
        real(group, tokens)

    text = letters(random.Random(7), 40, 40)
    generated(model, text)
    monkeypatch.setattr(Prefilling, "step", scarce)
    texts = [text + "de", text + "ff"]
    found = batched(model, texts)
    monkeypatch.undo()
    for one, text in zip(found, texts, strict=True):
        same(one, generated(cold, text))
    assert set(rows) == {2}


def test_an_idle_model_holds_its_weights_and_what_it_keeps(model: MlxModel) -> None:
    weights = model.memory().active_bytes
    for length in (30, 60, 120):
        list(model.generate(letters(random.Random(length), length, length), max_tokens=20))
    model.batch_generate([letters(random.Random(i), 40, 50) for i in range(5)], max_tokens=9)
    held = kept(model)
    tokens = held / (3 * 2 * 2 * 16 * 4)  # layers, keys and values, heads, size, float
    assert 0 < tokens < 30 + 60 + 120 + 5 * 50 + 3 * 20 + 5 * 9
    # MLX takes a buffer that it has for any array of half its size.
    assert 0 <= model.memory().active_bytes - weights - held < held
    model._loaded.prefixes.clear()
    assert model.memory().active_bytes - weights < 1000


def test_a_closed_model_keeps_nothing(directory: Path) -> None:
    model = opened(directory)
    generated(model, "defgh" * 9)
    store = model._loaded.prefixes
    assert store.used
    model.close()
    assert not store.used
