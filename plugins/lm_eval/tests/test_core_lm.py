"""`CoreLM` beside lm-eval's transformers model, `infer-cli eval`, and passes without a cache.

What transformers says is in oracle/hflm.json, which oracle/make.py has written with torch.
"""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance

import core
import core_tasks
from core.testing import FakeModel
from core_lm_eval import CoreLM
from tests.attacks.tiny_models import checkpoint, gguf

ORACLE = Path(__file__).parent / "oracle"
MAKE = runpy.run_path(str(ORACLE / "make.py"))
SAID: dict[str, Any] = json.loads((ORACLE / "hflm.json").read_text())
ITEMS = [json.loads(line) for line in (ORACLE / "items.jsonl").read_text().splitlines()]
TEXTS: list[str] = MAKE["TEXTS"]

# datasets, evaluate and their like warn of much that is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[core.TextModel]:
    """The checkpoint that the oracle was asked about."""
    with core.load_model(checkpoint(tmp_path_factory.mktemp("tiny")), backend="mlx_cpu") as model:
        yield model


@pytest.fixture(scope="module")
def asked(tiny: core.TextModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The task of HellaSwag's shape, through lm-eval."""
    folder = tmp_path_factory.mktemp("task")
    patch = pytest.MonkeyPatch()
    patch.setenv("HF_HOME", str(folder / "cache"))
    patch.setenv("HF_HUB_OFFLINE", "1")
    found = simple_evaluate(
        model=CoreLM(tiny), tasks=[MAKE["task"](folder)], log_samples=True, bootstrap_iters=0
    )
    patch.undo()
    assert found is not None
    return dict(found)


def requests(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, each, place) for place, each in enumerate(arguments)]


def test_a_task_comes_to_what_transformers_says(asked: dict[str, Any]) -> None:
    samples = sorted(asked["samples"]["local_hellaswag"], key=lambda each: each["doc_id"])
    for sample, expected in zip(samples, SAID["items"], strict=True):
        for (logprob, greedy), (said, best) in zip(sample["filtered_resps"], expected, strict=True):
            assert logprob == pytest.approx(said, abs=1e-4)
            assert greedy == best
    results = asked["results"]["local_hellaswag"]
    for name, value in SAID["results"].items():
        assert results[f"{name},none"] == value


def test_the_same_task_comes_to_the_same_in_our_own_eval(
    asked: dict[str, Any], tiny: core.TextModel
) -> None:
    items = [
        core_tasks.Item(row["ctx"], (row["endings"][row["label"]],), tuple(row["endings"]))
        for row in ITEMS
    ]
    found = core_tasks.evaluate(tiny, items, prompting=core_tasks.Prompting("{question}"))
    samples = sorted(asked["samples"]["local_hellaswag"], key=lambda each: each["doc_id"])
    for item, sample in zip(found.items, samples, strict=True):
        theirs = [logprob for logprob, _ in sample["filtered_resps"]]
        assert [*item.logprobs.values()] == pytest.approx(theirs, abs=1e-4)
    results = asked["results"]["local_hellaswag"]
    assert found.accuracy == results["acc,none"]
    assert found.report["accuracy_normalised"] == results["acc_norm,none"]


def test_whole_texts_are_rolled_as_in_transformers(tiny: core.TextModel) -> None:
    """One of them is longer than the context, and is read in windows."""
    assert tiny.info.context_length == SAID["max_length"]
    model = CoreLM(tiny, prefix_token_id=MAKE["PREFIX"])
    found = model.loglikelihood_rolling(
        requests("loglikelihood_rolling", *((text,) for text in TEXTS)), disable_tqdm=True
    )
    assert found == pytest.approx(SAID["rolling"], abs=1e-3)
    assert len(model.tok_encode(TEXTS[1])) > tiny.info.context_length


def test_whole_texts_are_what_a_pass_for_each_token_says(tiny: core.TextModel) -> None:
    model = CoreLM(tiny, prefix_token_id=MAKE["PREFIX"])
    [found] = model.loglikelihood_rolling(
        requests("loglikelihood_rolling", (TEXTS[0],)), disable_tqdm=True
    )
    ids = [MAKE["PREFIX"], *model.tok_encode(TEXTS[0])]
    assert isinstance(tiny, core.TokenPrompts)
    single = [tiny.score_tokens([ids[:n]], [[ids[n]]])[0].logprob for n in range(1, len(ids))]
    assert found == pytest.approx(math.fsum(single), abs=1e-3)


def test_an_empty_context_is_the_prefix(tiny: core.TextModel) -> None:
    model = CoreLM(tiny, prefix_token_id=MAKE["PREFIX"])
    asked = requests("loglikelihood", *(("", text) for text in TEXTS[::2]))
    for (logprob, greedy), (said, best) in zip(
        model.loglikelihood(asked, disable_tqdm=True), SAID["empty context"], strict=True
    ):
        assert logprob == pytest.approx(said, abs=1e-4)
        assert greedy == best


def test_without_a_bos_the_prefix_has_to_be_named(tiny: core.TextModel) -> None:
    with pytest.raises(core.InvalidOptionError, match="adds no BOS"):
        CoreLM(tiny).loglikelihood(requests("loglikelihood", ("", "a")), disable_tqdm=True)


def test_a_context_too_long_loses_its_beginning(tiny: core.TextModel) -> None:
    model = CoreLM(tiny)
    text = "a b ab no " * 30
    [(long, _), (short, _)] = model.loglikelihood(
        requests("loglikelihood", (text.strip(), " ab"), ("a b ab no", " ab")), disable_tqdm=True
    )
    assert math.isfinite(long)
    assert math.isfinite(short)
    limit = tiny.info.context_length
    ids = model.tok_encode(text.strip())[-limit:]
    assert isinstance(tiny, core.TokenPrompts)
    whole = model.tok_encode(f"{text.strip()} ab")[len(model.tok_encode(text.strip())) :]
    [score] = tiny.score_tokens([ids[len(whole) - 1 :]], [whole])
    assert long == pytest.approx(score.logprob, abs=1e-4)


def test_endings_of_one_context_share_its_prefill(tiny: core.TextModel) -> None:
    model = CoreLM(tiny, batch_size=2)
    context = " ".join(["a b ab no"] * 8)
    asked = requests("loglikelihood", *((context, end) for end in (" a", " b", " ab", " no no")))
    found = model.loglikelihood(asked, disable_tqdm=True)
    assert len(found) == 4
    # One call, though only two pairs were asked for at once: contexts are not divided.
    size = len(model.tok_encode(context))
    assert tiny.metrics.prompt_tokens >= 4 * size
    assert tiny.metrics.cached_prompt_tokens > 2.5 * size


@pytest.mark.parametrize("backend", ["mlx_cpu", "llama_cpp"])
def test_texts_end_where_they_are_to(backend: str, tmp_path: Path) -> None:
    path = (checkpoint if backend == "mlx_cpu" else gguf)(tmp_path)
    with core.load_model(path, backend=backend) as loaded:
        model = CoreLM(loaded, max_gen_toks=12)
        contexts = ["a b ab", "no", "b b b a"]
        plain = model.generate_until(
            requests("generate_until", *((each, {}) for each in contexts)), disable_tqdm=True
        )
        alone = [loaded.generate(each, max_tokens=12).text() for each in contexts]
        assert plain == alone
        stop = next(text[2] for text in alone if len(text) > 3)
        short = {"until": [stop], "max_gen_toks": 5, "do_sample": False, "temperature": 0.7}
        mixed = model.generate_until(
            requests("generate_until", (contexts[0], short), (contexts[1], {})), disable_tqdm=True
        )
        expected = loaded.generate(contexts[0], max_tokens=5, stop=[stop]).text()
        assert mixed == [expected, alone[1]]


def test_chats_go_through_the_models_template(tiny: core.TextModel) -> None:
    assert isinstance(tiny, core.Tokenizing)
    model = CoreLM(tiny)
    turns = [{"role": "user", "content": "a b"}]
    prompt = model.apply_chat_template(turns)
    assert prompt == tiny.render_chat([core.Message("user", "a b")])
    assert model.tok_encode(prompt) == tiny.encode(core.RenderedPrompt(prompt))
    begun = [*turns, {"role": "assistant", "content": "ab"}]
    assert model.apply_chat_template(begun, add_generation_prompt=False) == f"{prompt}ab"
    assert model.chat_template(True) == tiny.render_chat([core.Message("user", "Hello")])
    assert model.chat_template(False) == ""


def test_answers_are_kept_for_lm_evals_cache(tiny: core.TextModel) -> None:
    model, kept = CoreLM(tiny), []

    class Hook:
        def add_partial(self, *entry: object) -> None:
            kept.append(entry)

    model.cache_hook = Hook()
    model.loglikelihood(requests("loglikelihood", ("a", " b")), disable_tqdm=True)
    model.generate_until(requests("generate_until", ("a", {"max_gen_toks": 2})), disable_tqdm=True)
    assert [entry[:2] for entry in kept] == [
        ("loglikelihood", ("a", " b")),
        ("generate_until", ("a", {"max_gen_toks": 2})),
    ]


def test_what_a_backend_lacks_is_told() -> None:
    model = CoreLM(FakeModel("b."))
    with pytest.raises(core.UnsupportedOperationError, match="token_prompts"):
        model.loglikelihood(requests("loglikelihood", ("a", " b")), disable_tqdm=True)
    said = model.generate_until(
        requests("generate_until", ("a", {"until": "."})), disable_tqdm=True
    )
    assert said == ["b"]


def test_options_that_core_does_not_know_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeModel("b")
    wanted = {"do_sample": True, "num_beams": 3, "top_p": 0.5, "repetition_penalty": 1.5}
    CoreLM(fake).generate_until(requests("generate_until", ("a", wanted)), disable_tqdm=True)
    config = fake.calls[-1].config
    assert (config.temperature, config.top_p, config.repeat_penalty) == (1.0, 0.5, 1.5)
    assert "num_beams" in caplog.text


def test_a_path_is_loaded(tmp_path: Path) -> None:
    model = CoreLM(path=str(checkpoint(tmp_path)), backend="mlx_cpu", batch_size="auto")
    assert model.tokenizer_name == "llama"
    model.model.close()
    with pytest.raises(TypeError, match="the path of one"):
        CoreLM()


def test_a_key_is_not_taken_from_what_lm_eval_writes_into_its_results() -> None:
    arguments = {"path": "http://127.0.0.1:1", "options": {"api_key": "sk-MARKED"}}
    with pytest.raises(core.InvalidOptionError, match="CORE_REMOTE_API_KEY") as refused:
        CoreLM.create_from_arg_obj(arguments)
    assert "sk-MARKED" not in str(refused.value)
