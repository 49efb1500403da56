"""Greedy decoding of the real models as transformers does it (oracle_decode/, see its README).

First the stored continuations are fed back: at each position, the model must choose the stored
token with the stored log-probability. No cache takes part, so this holds whatever decodes. Then
the engine makes them itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

import core
from core.types import Message, Token
from core_mlx_native.backend import Cpu
from core_mlx_native.loaded import load_decoder
from core_mlx_native.model import MlxModel
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import prefill
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Case = dict[str, Any]
Which = Callable[[str, Case], bool]
Logits = npt.NDArray[np.float64]

ORACLE = Path(__file__).parents[1] / "oracle_decode"
PROMPTS: dict[str, str] = json.loads((ORACLE / "prompts.json").read_text(encoding="utf-8"))
FIXTURES = {"smollm2-135m-instruct": "smollm2_dir", "gemma-3-270m": "gemma3_dir"}
RECORDS: dict[str, dict[str, Any]] = {
    name: json.loads((ORACLE / "data" / f"{name}.json").read_text(encoding="utf-8"))
    for name in FIXTURES
}


GENERATED_BY_DEFAULT = ("news", "unicode", "word", "chat")
GENERATED_BY_GEMMA = ("word", "across the window", "beyond the window")


def seldom(model: str, case: Case) -> bool:
    return "gemma" in model or "window" in case["name"]


def again(model: str, case: Case) -> bool:
    return "gemma" in model and case["name"] not in GENERATED_BY_GEMMA


def never(model: str, case: Case) -> bool:
    return False


def cases(slow: Which, long: Which = never) -> list[Any]:
    def marks(model: str, case: Case) -> Any:
        if long(model, case):
            return pytest.mark.long
        return pytest.mark.slow if slow(model, case) else ()

    return [
        pytest.param(
            *(model, case),
            id=f"{model}-{case['name'].replace(' ', '-')}",
            marks=marks(model, case),
        )
        for model, record in RECORDS.items()
        for case in record["cases"]
    ]


# Gemma 3, twice as large, with the soaks, but for one case of the forward pass; so are the prompts
# as long as its window, which SmolLM2 does not have, and most of what the engine generates. What
# Gemma 3 says alone to most prompts waits for the long tests: the soaks ask all in a batch.
CASES = cases(slow=lambda model, case: seldom(model, case) and case["name"] != "word")
SOME_CASES = cases(
    slow=lambda model, case: seldom(model, case) or case["name"] not in GENERATED_BY_DEFAULT,
    long=again,
)
STEPS = 32
WINDOW = 512  # of Gemma 3's sliding layers
TOLERANCE = 1e-3  # of log-probabilities, and the margin below which two tokens are a tie
VISIBLE = 5e-3  # what a mistake must at least make, if the comparison is to tell
END_OF_TURN = 2  # SmolLM2's <|im_end|>


@dataclass(frozen=True)
class Real:
    """One real model, and what transformers made of it."""

    directory: Path
    tokenizer: Tokenizer
    record: dict[str, Any]

    @cached_property
    def decoder(self) -> Decoder:
        """Loaded when a test first asks: a gigabyte that those of the tokenizer do without."""
        return load_decoder(self.directory)


@pytest.fixture(scope="module", params=FIXTURES)
def real(request: pytest.FixtureRequest) -> Iterator[Real]:
    directory: Path = request.getfixturevalue(FIXTURES[request.param])
    tokenizer = Tokenizer.from_directory(directory)
    yield Real(directory, tokenizer, RECORDS[request.param])
    mx.clear_cache()


def teacher_forced(decoder: Decoder, case: Case) -> Logits:
    """Logits [steps, vocabulary] with the prompt and the stored continuation given."""
    ids = [*case["ids"], *case["continuation"][:-1]]
    hidden = prefill(decoder, [ids]).hidden[0, len(case["ids"]) - 1 :]
    return np.array(decoder.logits(hidden), np.float64)


def stored_logprobs(logits: Logits, case: Case) -> Logits:
    """What the logits make of the stored tokens: natural-log probabilities [steps]."""
    top = logits.max(axis=-1, keepdims=True)
    total = (top + np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)))[:, 0]
    logprobs: Logits = logits[np.arange(len(logits)), case["continuation"]] - total
    return logprobs


def distance(decoder: Decoder, case: Case) -> float:
    """Largest difference from the stored log-probabilities."""
    ours = stored_logprobs(teacher_forced(decoder, case), case)
    return float(np.abs(ours - case["logprobs"]).max())


@pytest.mark.parametrize("model", FIXTURES)
def test_record_covers_what_it_is_for(model: str) -> None:
    prompts = [case for case in RECORDS[model]["cases"] if "messages" not in case]
    assert [case["name"] for case in prompts] == list(PROMPTS)
    assert len(prompts) == 10
    assert {len(case["continuation"]) for case in prompts} == {STEPS}
    lengths = {case["name"]: len(case["ids"]) for case in prompts}
    assert lengths["across the window"] < WINDOW < lengths["across the window"] + STEPS
    assert lengths["beyond the window"] > WINDOW
    clear = [margin > TOLERANCE for case in prompts for margin in case["margins"]]
    assert np.mean(clear) > 0.99, "too many ties to say anything"


def test_an_answer_in_a_chat_ends_by_itself() -> None:
    (case,) = (case for case in RECORDS["smollm2-135m-instruct"]["cases"] if "messages" in case)
    assert len(case["continuation"]) < STEPS
    assert case["continuation"].index(END_OF_TURN) == len(case["continuation"]) - 1


def test_record_belongs_to_the_model(real: Real) -> None:
    conversion = json.loads((real.directory / "conversion.json").read_bytes())
    assert conversion["source"]["sha256"] == real.record["gguf_sha256"], "record it again"


def test_prompts_have_the_same_ids(real: Real) -> None:
    for case in real.record["cases"]:
        prompt = PROMPTS.get(case["name"]) or real.tokenizer.render_chat(
            [Message(**message) for message in case["messages"]]
        )
        assert real.tokenizer.encode(prompt) == case["ids"], case["name"]


def test_continuations_have_the_same_text(real: Real) -> None:
    for case in real.record["cases"]:
        assert real.tokenizer.decode(case["continuation"]) == case["text"], case["name"]


@pytest.mark.parametrize(("real", "case"), CASES, indirect=["real"])
def test_same_tokens_and_log_probabilities(real: Real, case: Case) -> None:
    logits = teacher_forced(real.decoder, case)
    clear = np.array(case["margins"]) > TOLERANCE
    assert (logits.argmax(axis=-1) == case["continuation"])[clear].all()
    assert np.abs(stored_logprobs(logits, case) - case["logprobs"]).max() < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("window", [WINDOW - 1, WINDOW + 1])
def test_a_wrong_window_shows(gemma3_dir: Path, tmp_path: Path, window: int) -> None:
    config = json.loads((gemma3_dir / "config.json").read_bytes())
    assert config["sliding_window"] == WINDOW
    changed = {**config, "sliding_window": window}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    (tmp_path / "model.safetensors").symlink_to(gemma3_dir / "model.safetensors")
    wrong, cases = load_decoder(tmp_path), RECORDS["gemma-3-270m"]["cases"]
    by_name = {case["name"]: case for case in cases}
    assert distance(wrong, by_name["long"]) < TOLERANCE
    assert distance(wrong, by_name["across the window"]) > VISIBLE
    assert distance(wrong, by_name["beyond the window"]) > VISIBLE


# The engine: `generate`, `chat` and `batch_generate`.

END_IDS = {"smollm2-135m-instruct": {0, END_OF_TURN}, "gemma-3-270m": {1, 106}}


@dataclass(frozen=True, slots=True)
class Loaded:
    """One real model as a user has it, and the cases without a conversation."""

    name: str
    model: MlxModel

    @property
    def cases(self) -> list[Case]:
        return [case for case in RECORDS[self.name]["cases"] if "messages" not in case]

    @property
    def prompts(self) -> list[str]:
        return [PROMPTS[case["name"]] for case in self.cases]

    def check(self, tokens: Sequence[Token], case: Case) -> None:
        """The stored ids and log-probabilities, until rounding may decide between two tokens.

        What ends a generation is stored, and not emitted.
        """
        steps = clear_steps(case)
        assert steps > 0
        wanted = [token for token in case["continuation"] if token not in END_IDS[self.name]]
        assert [token.id for token in tokens][:steps] == wanted[:steps]
        assert steps < len(case["continuation"]) or len(tokens) == len(wanted)
        logprobs = [token.logprob for token in tokens[:steps]]
        assert logprobs == pytest.approx(case["logprobs"][: len(logprobs)], abs=TOLERANCE)


@pytest.fixture(scope="module", params=FIXTURES)
def loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    directory: Path = request.getfixturevalue(FIXTURES[request.param])
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        yield Loaded(request.param, model)


def clear_steps(case: Case) -> int:
    """How many of the stored steps come before the first near tie."""
    return len(list(itertools.takewhile(lambda margin: margin > TOLERANCE, case["margins"])))


@pytest.mark.parametrize(("loaded", "case"), SOME_CASES, indirect=["loaded"])
def test_generate_and_chat(loaded: Loaded, case: Case) -> None:
    config = core.GenerateConfig(max_tokens=STEPS, return_logprobs=True)
    if "messages" in case:
        stream = loaded.model.chat([Message(**message) for message in case["messages"]], config)
    else:
        stream = loaded.model.generate(PROMPTS[case["name"]], config)
    loaded.check(list(stream), case)
    assert stream.metrics.prompt_tokens == len(case["ids"])
    if clear_steps(case) == len(case["continuation"]):
        ended = case["continuation"][-1] in END_IDS[loaded.name]
        assert stream.finish_reason == ("stop" if ended else "length")


@pytest.mark.slow
def test_batch_generate(loaded: Loaded) -> None:
    results = loaded.model.batch_generate(loaded.prompts, max_tokens=STEPS, return_logprobs=True)
    for case, result in zip(loaded.cases, results, strict=True):
        assert result.error is None
        loaded.check(result.tokens, case)


@pytest.mark.parametrize(
    ("loaded", "longest"),
    [
        ("smollm2-135m-instruct", 100),  # the long prompts are nine tenths of the time
        *(pytest.param(name, 1000, marks=pytest.mark.slow) for name in FIXTURES),
    ],
    indirect=["loaded"],
)
def test_classify_reads_the_first_token(loaded: Loaded, longest: int) -> None:
    cases = [case for case in loaded.cases if len(case["ids"]) < longest]
    assert len(cases) >= 7
    results = loaded.model.classify([PROMPTS[c["name"]] for c in cases], return_logprobs=True)
    for case, result in zip(cases, results, strict=True):
        first = {name: case[name][:1] for name in ("continuation", "margins", "logprobs")}
        assert result.token is not None
        loaded.check([result.token], {**case, **first})
