"""Every distribution that the engine draws from, against a pass without a cache.

The pass is the definition: all tokens of prompt and output so far at once, each seeing what stands
before it in its window. The engine's way there goes through chunks, padding, refills, rotated
buffers, and neighbours that come, go and are cancelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from core.options import GenerateConfig, LoadConfig
from core_mlx_native.decode.batch import DrawnTokens, SamplingRows
from core_mlx_native.decode.columns import Columns
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.decode.kv_cache import BatchCache, CacheShape, LayerCache
from core_mlx_native.loaded import LoadedModel, load
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.masks import additive
from core_mlx_native.network.rotary import View
from core_mlx_native.sampling.sampling import sample
from core_runtime.owner import OwnerThread
from core_runtime.request import Item, Request, RequestEnd
from core_runtime.waiting import PromptJob

Floats = npt.NDArray[np.float32]
Checkpoint = Callable[..., Path]

WINDOW = 16
LENGTHS = (*range(1, 41), *range(6, 34))  # of the prompts
CONTEXT = 128
SLOTS = 8
TOLERANCE = 1e-3
VISIBLE = 1e-2  # what a mistake must at least make, if the comparison is to tell
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"sliding_window": WINDOW},
    "gemma2": {"sliding_window": WINDOW},
    "gemma3": {"sliding_window": WINDOW},
}
AROUND_THE_WINDOW = (1, 40, WINDOW - 1, WINDOW + 1, 6, 33, WINDOW, 12, 2 * WINDOW)
CHUNKS = {4: 64, 8: 128, 1024: 1024}  # tokens of a chunk: tokens that are prefilled together


def opened(
    checkpoint: Checkpoint, family: str, overlap: bool = False, **config: Any
) -> LoadedModel:
    """A tiny model; ``overlap`` is what a GPU's engine does."""
    directory = checkpoint(family, max_position_embeddings=CONTEXT, **FAMILIES[family])
    options = LoadConfig(**{"parallel_slots": SLOTS, **config})
    return replace(load(directory, options, on_gpu=False), overlap=overlap)


def chunked(size: int) -> dict[str, Any]:
    return {"options": {"prefill_chunk": size, "token_budget": CHUNKS[size]}}


class Stopped(OwnerThread):
    """An owner thread that never serves: the test takes the engine's steps itself."""

    def __init__(self) -> None:
        super().__init__("stopped")
        self.stop()

    def post(self, job: Callable[[], None]) -> bool:
        return True


@dataclass
class Trace:
    """What the engine computed for one request: the logits of each draw, and what it drew."""

    logits: dict[int, Floats] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


Traces = dict[Request, Trace]


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    """Filled by every engine while the test runs."""
    found: Traces = defaultdict(Trace)
    draw, take = SamplingRows.draw, Request.take

    def drawn(
        rows: SamplingRows, logits: mx.array, broken: mx.array, pending: int = 0
    ) -> DrawnTokens:
        for request, row in zip(rows.requests, np.array(logits), strict=True):
            if not request.ended:
                step = request.drawn + pending
                assert step not in found[request].logits, "a step was drawn twice"
                found[request].logits[step] = row
        return draw(rows, logits, broken, pending)

    def taken(request: Request, token: int, logprob: float | None) -> None:
        assert logprob is not None
        found[request].tokens.append(token)
        found[request].logprobs.append(logprob)
        take(request, token, logprob)

    monkeypatch.setattr(SamplingRows, "draw", drawn)
    monkeypatch.setattr(Request, "take", taken)
    return found


def cache_free(decoder: Decoder, ids: Sequence[int], limit: int = 0) -> Floats:
    """Next-token logits behind each of these tokens: [T, vocabulary], from one pass.

    Token i sees j iff ``0 <= i - j < window``; ``limit`` bounds the window of every layer.
    """
    size = len(ids)
    behind = np.arange(size)[:, None] - np.arange(size)
    masks: dict[int, mx.array | None] = {}
    for window in {kind.window for kind in decoder.config.layers}:
        allowed = (behind >= 0) & (behind < min(window or size, limit or size))
        masks[window] = additive(mx.array(allowed[None, None]), decoder.dtype)
    hidden = decoder(mx.array([list(ids)]), View(0, masks))[0]
    return np.array(decoder.logits(hidden[0]))


@dataclass
class Distance:
    """How far an engine was from the definition, at most."""

    positions: int = 0
    logits: float = 0.0
    logprobs: float = 0.0

    def add(self, logits: Floats, wanted: Floats) -> None:
        self.positions += len(wanted)
        self.logits = max(self.logits, float(np.abs(logits - wanted).max()))


def distance(model: LoadedModel, traces: Traces, limit: int = 0) -> Distance:
    """Compare every draw whose tokens before are known, and every token's log-probability."""
    far = Distance()
    for request, trace in traces.items():
        assert set(range(len(trace.tokens))) <= set(trace.logits), "a token without a draw"
        steps = [step for step in sorted(trace.logits) if step <= len(trace.tokens)]
        if not steps:
            continue
        known = [*request.ids, *trace.tokens[: steps[-1]]]
        wanted = cache_free(model.decoder, known, limit)[len(request.ids) - 1 :]
        far.add(np.stack([trace.logits[step] for step in steps]), wanted)
        chosen = log_softmax(wanted)[np.arange(len(trace.tokens)), trace.tokens]
        apart = np.abs(chosen - trace.logprobs).max(initial=0.0)
        far.logprobs = max(far.logprobs, float(apart))
    return far


def log_softmax(logits: Floats) -> npt.NDArray[np.float64]:
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=-1, keepdims=True)
    found: npt.NDArray[np.float64] = exact - np.log(np.exp(exact).sum(axis=-1, keepdims=True))
    return found


@dataclass(frozen=True)
class Cancel:
    """Set once something has happened."""

    happened: Callable[[], bool]

    def is_set(self) -> bool:
        return self.happened()


class Crowd:
    """Requests that come, wander at temperature 1, and are cancelled, by a fixed plan."""

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.engine = model, MlxEngine(model, Stopped())
        self.random = np.random.default_rng(0)
        self.requests: list[Request] = []
        self.ends: list[RequestEnd] = []
        self._step = 0

    def run(self, lengths: Sequence[int], together: int) -> None:
        """The first few at once, the others one by one while those run."""
        self.engine.submit([self.job(length) for length in lengths[:together]])
        later = iter(lengths[together:])
        while self.engine.step():
            self._step += 1
            if self._step % 4 == 0:
                self.engine.submit([self.job(length) for length in islice(later, 1)])
        assert next(later, None) is None, "ran out of work before the last one came"

    def job(self, length: int) -> PromptJob:
        """A prompt, every fifth with three continuations."""
        ids = self.random.integers(2, self.model.config.vocab_size, length).tolist()
        samples = 3 if length % 5 == 0 else 1
        requests = tuple(self.request(ids) for _ in range(samples))
        return PromptJob(ids, requests)

    def request(self, ids: Sequence[int]) -> Request:
        number = len(self.requests)
        config = GenerateConfig(
            max_tokens=int(self.random.choice([1, 2, 70, 80, 80])),
            temperature=1.0,
            repeat_penalty=float(self.random.choice([1.0, 1.5])),
            seed=number,
            stop_tokens=tuple(range(2, 8)) if number % 4 == 0 else (),
            return_logprobs=True,
            cancel=self.cancel(number),
        )
        self.requests.append(Request(self.model, ids, config, self.sink))
        return self.requests[-1]

    def cancel(self, number: int) -> Cancel | None:
        """Some are cancelled three steps after they came, some after ten tokens."""
        due = self._step + 3
        if number % 12 == 3:
            return Cancel(lambda: self._step >= due)
        if number % 12 == 9:
            return Cancel(lambda: self.requests[number].drawn >= 10)
        return None

    def sink(self, item: Item) -> None:
        if isinstance(item, RequestEnd):
            self.ends.append(item)

    @property
    def reasons(self) -> set[str]:
        return {end.reason for end in self.ends}


def shuffled(lengths: Sequence[int]) -> list[int]:
    order: list[int] = np.random.default_rng(1).permutation(lengths).tolist()
    return order


BY_DEFAULT = {("gemma3", 4), ("llama", 8)}  # windows, and steps that overlap; the rest is a soak


@pytest.mark.parametrize(
    ("family", "chunk", "overlap"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] * (each[:2] not in BY_DEFAULT))
        for family in FAMILIES
        for each in ((family, 4, False), (family, 8, True), (family, 1024, False))
    ],
)
def test_every_draw_is_from_the_cache_free_distribution(
    checkpoint: Checkpoint, traces: Traces, family: str, chunk: int, overlap: bool
) -> None:
    model = opened(checkpoint, family, overlap, **chunked(chunk))
    crowd = Crowd(model)
    crowd.run(shuffled(LENGTHS), together=12)
    assert len(crowd.ends) == len(crowd.requests)
    assert crowd.reasons == {"stop", "length", "cancelled"}
    cut = {bool(traces[request].tokens) for request in crowd.requests if request.interruption()}
    assert cut == {True, False}, "cancelled while decoding, and before"
    far = distance(model, traces)
    assert far.positions >= 2000
    assert far.logits < TOLERANCE
    assert far.logprobs < TOLERANCE


def test_every_token_is_what_seed_step_and_penalty_make_of_the_logits(
    checkpoint: Checkpoint, traces: Traces
) -> None:
    crowd = Crowd(opened(checkpoint, "gemma3", **chunked(8)))
    crowd.run(AROUND_THE_WINDOW, together=8)
    drawn = 0
    for request, trace in traces.items():
        for step, token in enumerate(trace.tokens):
            seen = [*request.ids, *trace.tokens[:step]]
            logits = mx.array(trace.logits[step])[None]
            assert sample(logits, [seen], request.config, step).item() == token
            drawn += 1
    assert drawn > 200


Patch = Callable[[pytest.MonkeyPatch], None]


def late_rope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that decode stand one position too far on."""
    begin = BatchCache.begin

    def wrong(cache: BatchCache, size: int = 1, real: Sequence[int] | None = None) -> View:
        view = begin(cache, size, real)
        return View(view.positions + (real is None), view.masks)

    monkeypatch.setattr(BatchCache, "begin", wrong)


def visible_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row sees as much as the longest one."""
    mask = Columns.mask

    def wrong(
        columns: Columns, lengths: Sequence[int], size: int, dtype: mx.Dtype
    ) -> mx.array | None:
        return mask(columns, [max(lengths)] * len(lengths), size, dtype)

    monkeypatch.setattr(Columns, "mask", wrong)


def other_window(by: int) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        columns = CacheShape.columns

        def wrong(shape: CacheShape, window: int) -> Columns:
            return columns(shape, window + by if window else 0)

        monkeypatch.setattr(CacheShape, "columns", wrong)

    return patch


def wrong_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refilled row stands one column too far on, and ends without its last token."""
    overwrite = LayerCache.overwrite

    def wrong(layer: LayerCache, row: int, keys: mx.array, values: mx.array) -> None:
        overwrite(layer, row, keys[:, :, :-1], values[:, :, :-1])

    monkeypatch.setattr(LayerCache, "overwrite", wrong)


MISTAKES: dict[str, Patch] = {
    "rope": late_rope,
    "padding": visible_padding,
    "refill": wrong_refill,
    "wider": other_window(1),
    "narrower": other_window(-1),
}
SOAKED = [  # by default one family, which has a window; the others with the soaks
    pytest.param(family, marks=[pytest.mark.slow] * (family != "gemma3")) for family in FAMILIES
]
SHOWING = [
    pytest.param(family, mistake, marks=[pytest.mark.slow] * (family != "gemma3"))
    for family in FAMILIES
    for mistake in MISTAKES
    if FAMILIES[family] or mistake not in ("wider", "narrower")
]


@pytest.mark.parametrize("family", SOAKED)
def test_without_a_mistake_nothing_shows(
    checkpoint: Checkpoint, traces: Traces, family: str
) -> None:
    model = opened(checkpoint, family, parallel_slots=3, **chunked(8))
    Crowd(model).run(AROUND_THE_WINDOW, together=8)
    assert distance(model, traces).logits < TOLERANCE


@pytest.mark.parametrize(("family", "mistake"), SHOWING)
def test_a_mistake_in_the_engine_shows(
    checkpoint: Checkpoint,
    traces: Traces,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    mistake: str,
) -> None:
    model = opened(checkpoint, family, parallel_slots=3, **chunked(8))
    MISTAKES[mistake](monkeypatch)
    Crowd(model).run(AROUND_THE_WINDOW, together=8)
    assert distance(model, traces).logits > VISIBLE


@pytest.mark.parametrize(
    ("family", "chunk"),
    [  # by default each family with one of both
        pytest.param(family, chunk, marks=[pytest.mark.slow] * (number % 2 != (chunk == 1024)))
        for number, family in enumerate(FAMILIES)
        for chunk in (4, 1024)
    ],
)
def test_a_rotating_context_sees_its_last_positions(
    checkpoint: Checkpoint, traces: Traces, family: str, chunk: int
) -> None:
    limit = 24
    model = opened(
        checkpoint, family, context_len=limit, context_overflow="rotate", **chunked(chunk)
    )
    crowd = Crowd(model)
    crowd.run(shuffled(range(1, limit + 1)), together=12)
    lengths = [len(request.ids) + len(traces[request].tokens) for request in crowd.requests]
    assert sum(length > 2 * limit for length in lengths) > 5
    far = distance(model, traces, limit)
    assert far.logits < TOLERANCE
    assert far.logprobs < TOLERANCE
    for wrong in (limit - 1, limit + 1, 0):
        assert distance(model, traces, wrong).logits > VISIBLE
