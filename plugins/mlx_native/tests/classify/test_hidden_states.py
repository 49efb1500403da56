"""``hidden_states``: every layer against transformers' (oracle/, see its README), and rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.cpu import lanes as lanes_module
from core_mlx_native.model import MlxModel
from core_mlx_native.network.decoder import Layer

Checkpoint = Callable[..., Path]
States = npt.NDArray[np.float32]

DATA = Path(__file__).parents[1] / "oracle" / "data"
CASES = [path.parent for path in sorted(DATA.glob("*/*/states.json"))]
IDS: list[list[int]] = json.loads((DATA / "prompts.json").read_text())
NUMBERS = [" ".join(map(str, ids)) for ids in IDS]
TOLERANCE = 1e-5  # of a state's length
VISIBLE = 1e-2  # what a mistake must at least make, if the comparison is to tell

PROMPTS = ["ab ab no", "a", "no no no no no no no no no no", "x y z-ab no", "no ab " * 7]
LABELS = ("ab", "no")


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Iterator[MlxModel]:
    with load(checkpoint(request.param)) as loaded:
        yield loaded


def load(directory: Path, **options: Any) -> MlxModel:
    return Cpu().load_model(directory, core.LoadConfig(options=options))


def every_layer(model: MlxModel) -> range:
    return range(model.info.num_layers + 1)


def states(model: MlxModel, prompts: Sequence[str], layers: Sequence[int] = (-1,)) -> States:
    """[prompts, layers, hidden size]"""
    results = model.hidden_states(prompts, layers=layers)
    assert [result.error for result in results] == [None] * len(prompts)
    flat = [np.frombuffer(result.states, np.float32) for result in results if result.states]
    return np.array(flat).reshape(len(prompts), len(layers), model.info.hidden_size)


def distance(left: States, right: States) -> float:
    """The greatest of all states' distances, by their lengths."""
    assert left.shape == right.shape
    lengths = np.linalg.norm(right, axis=-1)
    return float((np.linalg.norm(left - right, axis=-1) / lengths).max())


def assemble(directory: Path, case: Path) -> Path:
    """A model directory of the case in which the text "17 4" is the ids 17 and 4."""
    shutil.copytree(case.parent / "weights", directory)
    shutil.copy(case / "config.json", directory)
    numbers = {str(number): number for number in range(96)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


# ------------------------------------------------------------ against transformers


def test_references_cover_every_family() -> None:
    kinds = {json.loads((case / "config.json").read_text())["model_type"] for case in CASES}
    assert kinds == {"llama", "gemma2", "gemma3_text", "qwen2", "qwen3", "mistral"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.parent.name)
@pytest.mark.parametrize("options", [{}, {"without": ["last_layer", "sorted"]}], ids=str)
def test_every_layer_is_that_of_transformers(
    case: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    wanted = np.array(json.loads((case / "states.json").read_text()), np.float32)
    with load(assemble(tmp_path / "model", case), **options) as model:
        found = states(model, NUMBERS, every_layer(model))
        alone = np.concatenate([states(model, [text], every_layer(model)) for text in NUMBERS])
    assert distance(found, wanted) < TOLERANCE
    assert distance(alone, wanted) < TOLERANCE

    # No two layers are alike, so that one in the place of another would show.
    pairs = [(wanted[:, [a]], wanted[:, [b]]) for a in range(3) for b in range(a)]
    assert min(distance(*pair) for pair in pairs) > VISIBLE


def test_the_head_makes_the_logits_of_the_last_layer(model: MlxModel) -> None:
    results = model.classify(PROMPTS, return_logits=True)
    logits = np.array([np.frombuffer(result.logits or b"", np.float32) for result in results])
    decoder = model._loaded.decoder

    def head() -> npt.NDArray[np.float32]:
        product = decoder.lm_head if "lm_head" in decoder else decoder.embed_tokens.product
        return np.array(product(mx.array(states(model, PROMPTS)[:, 0])))

    assert np.abs(head() - logits).max() < 1e-4


# ------------------------------------------------------------ rows and layers


def test_neighbours_order_and_lanes_play_no_part(
    model: MlxModel, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "usable_lanes", lambda: 2)
    layers, many = every_layer(model), [f"{text} {end}" for end in "abxyz" for text in PROMPTS]
    together = states(model, many, layers)
    backwards = states(model, many[::-1], layers)[::-1]
    family = "gemma3" if model.model_type == "gemma3_text" else "llama"
    with load(checkpoint(family, name="again"), token_budget=1) as other:
        apart = states(other, many, layers)
    assert distance(together, apart) < TOLERANCE
    assert distance(backwards, apart) < TOLERANCE


def test_a_shared_beginning_is_computed_once_and_changes_nothing(model: MlxModel) -> None:
    begun = ["no ab " * 5 + text for text in ("ab", "no x", "y z y z", "x")]
    wanted = np.concatenate([states(model, [text], every_layer(model)) for text in begun])
    assert distance(states(model, begun, every_layer(model)), wanted) < TOLERANCE
    assert model.metrics.cached_prompt_tokens > 0

    # Nor does what lower layers alone have computed serve a call of all of them.
    other = ["x y " * 6 + text for text in ("ab", "no x")]
    for _ in range(3):
        for text in other:
            states(model, [text], (1,))
    fresh = [model.classify([text], labels=LABELS)[0].logprobs or {} for text in other]
    both = model.classify(other, labels=LABELS)
    for left, right in zip(fresh, both, strict=True):
        assert left == pytest.approx(right.logprobs, abs=1e-4)


def test_layers_come_in_the_order_that_was_asked_for(model: MlxModel) -> None:
    last = model.info.num_layers
    found = model.hidden_states(PROMPTS, layers=(-1, 0, 1))
    assert {result.layers for result in found} == {(last, 0, 1)}
    whole = states(model, PROMPTS, every_layer(model))
    assert distance(states(model, PROMPTS, (-1, 0, 1)), whole[:, [last, 0, 1]]) < TOLERANCE
    for layer in every_layer(model):
        assert distance(states(model, PROMPTS, (layer,)), whole[:, [layer]]) < TOLERANCE


def test_layers_above_the_highest_one_do_not_run(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    call = Layer.__call__

    def counted(self: Layer, *args: Any) -> Any:
        ran.append(id(self))
        return call(self, *args)

    monkeypatch.setattr(Layer, "__call__", counted)
    for layer, count in ((0, 1), (1, 1), (2, 2), (-1, model.info.num_layers)):
        ran.clear()
        model.hidden_states(["ab"], layers=(layer,))
        assert len(set(ran)) == count


def test_equal_prompts_are_computed_once_and_share_no_memory(model: MlxModel) -> None:
    first, second = model.hidden_states(["ab no", "ab no"])
    assert model.metrics.cached_prompt_tokens == len(model.encode("ab no"))
    assert first.states is not None
    assert first.states == second.states
    first.states[0] += 1.0
    assert first.states != second.states


# ------------------------------------------------------------ what goes wrong


def test_an_error_stays_in_its_row(model: MlxModel) -> None:
    limit = model.info.context_length
    found = model.hidden_states(["", "ab", "x" * (limit + 1), "\ud800", "no"])
    assert [type(result.error) for result in found] == [
        core.EmptyPromptError,
        type(None),
        core.PromptTooLongError,
        core.RequestError,
        type(None),
    ]
    assert all((result.states is None) == (result.error is not None) for result in found)
    assert model.hidden_states([]) == []


def test_stopping_is_the_error_of_each_row(model: MlxModel) -> None:
    class Set:
        def is_set(self) -> bool:
            return True

    cancelled = model.hidden_states(PROMPTS, cancel=Set())
    assert {type(result.error) for result in cancelled} == {core.GenerationCancelled}
    late = model.hidden_states(PROMPTS, timeout=1e-9)
    assert {type(result.error) for result in late} == {core.GenerationTimeout}
    assert model.hidden_states(["ab"])[0].error is None


def test_wrong_options_are_refused_at_the_call(model: MlxModel) -> None:
    for wrong in ((), (9,), (-9,), (0, 0), "0"):
        with pytest.raises(core.InvalidOptionError, match="layers"):
            model.hidden_states(PROMPTS, layers=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="labels"):
        model.hidden_states(PROMPTS, labels=LABELS)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="wrap a single one in a list"):
        model.hidden_states("ab")
    model.close()
    with pytest.raises(core.ModelClosedError):
        model.hidden_states(PROMPTS)


def test_states_that_are_no_numbers_are_an_error(checkpoint: Checkpoint) -> None:
    directory = checkpoint("llama")
    weights = dict(mx.load(str(directory / "model.safetensors")))  # type: ignore[arg-type]
    weights["model.layers.1.mlp.down_proj.weight"] *= float("nan")
    mx.save_safetensors(str(directory / "model.safetensors"), weights)
    with load(directory) as model:
        found = model.hidden_states(["ab"])[0]
        assert isinstance(found.error, core.InvalidModelError)
        assert "hidden states" in str(found.error)
        assert model.hidden_states(["ab"], layers=(1,))[0].error is None
