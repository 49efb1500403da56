"""``classify`` as the contract has it, on tiny models that run in milliseconds."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import scheduler
from core_mlx_native.model import MlxModel
from core_mlx_native.network import prefill
from core_mlx_native.network.decoder import Layer

Checkpoint = Callable[..., Path]
PROMPTS = ["ab ab no", "a", "no no no no no no no no no", "x y z", "ab"]


@pytest.fixture(params=["llama", "gemma3"])
def directory(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Path:
    return checkpoint(request.param)


@pytest.fixture
def model(directory: Path) -> Iterator[MlxModel]:
    with Cpu().load_model(directory, core.LoadConfig()) as loaded:
        yield loaded


def logits(result: core.ClassifyResult) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert result.logits is not None
    return np.frombuffer(result.logits, dtype=np.float32)


def test_results_come_in_input_order_and_do_not_depend_on_neighbours(model: MlxModel) -> None:
    together = model.classify(PROMPTS, return_logits=True)
    backwards = model.classify(PROMPTS[::-1], return_logits=True)[::-1]
    for prompt, one, other in zip(PROMPTS, together, backwards, strict=True):
        [alone] = model.classify([prompt], return_logits=True)
        assert np.abs(logits(one) - logits(alone)).max() < 1e-4
        assert np.abs(logits(one) - logits(other)).max() < 1e-4
        assert one.token == alone.token


def test_micro_batches_change_nothing(model: MlxModel, checkpoint: Checkpoint) -> None:
    family = "gemma3" if model.model_type == "gemma3_text" else "llama"
    small = core.LoadConfig(options={"token_budget": 1})
    with Cpu().load_model(checkpoint(family, name="again"), small) as other:
        left = model.classify(PROMPTS, labels=["ab", "no"], return_logits=True)
        right = other.classify(PROMPTS, labels=["ab", "no"], return_logits=True)
    for one, two in zip(left, right, strict=True):
        assert np.abs(logits(one) - logits(two)).max() < 1e-4
        assert one.probabilities == pytest.approx(two.probabilities, abs=1e-4)


def test_an_empty_batch_gives_an_empty_list(model: MlxModel) -> None:
    assert model.classify([]) == []
    assert model.classify([], labels=["a", "b"]) == []


def test_greedy_is_the_best_logit_and_its_logprob_is_right(model: MlxModel) -> None:
    [result] = model.classify(["ab no"], return_logits=True, return_logprobs=True)
    values = logits(result).astype(np.float64)
    assert result.token is not None
    assert result.token.id == int(values.argmax())
    assert len(values) == model.info.vocab_size
    expected = values.max() - np.log(np.exp(values - values.max()).sum()) - values.max()
    assert result.token.logprob == pytest.approx(expected, abs=1e-4)


def test_logits_and_logprobs_are_there_only_when_asked(model: MlxModel) -> None:
    [result] = model.classify(["ab"])
    assert result.logits is None
    assert result.token is not None
    assert result.token.logprob is None
    assert (result.label, result.probabilities, result.label_mass) == (None, None, None)


def test_labels_get_probabilities_mass_and_margin(model: MlxModel) -> None:
    [result] = model.classify(["ab"], labels=["ab", "abc", "no", "q"], return_logits=True)
    assert result.probabilities is not None
    assert result.logprobs is not None
    assert sum(result.probabilities.values()) == pytest.approx(1.0)
    ranked = sorted(result.probabilities.items(), key=lambda item: -item[1])
    assert result.label == ranked[0][0]
    assert result.margin == pytest.approx(ranked[0][1] - ranked[1][1])
    assert 0 < (result.label_mass or 0) <= 1
    # " ab", " abc" and " no" are one token each here, so their scores stand in the logits.
    values = logits(result).astype(np.float64)
    log_total = np.log(np.exp(values).sum())
    for label in ("ab", "abc", "no"):
        token = model.encode(" " + label)[-1]
        assert result.logprobs[label] == pytest.approx(values[token] - log_total, abs=1e-4)


def test_labels_whose_first_token_melts_with_the_prompt_are_read_from_before_it(
    model: MlxModel,
) -> None:
    # "x " ends in a space token, and " ab" is one token: nobody tokenises it as "x", " ", "ab".
    options: dict[str, Any] = {"labels": ["ab", "no"]}
    [spaced] = model.classify(["x "], **options)
    [plain] = model.classify(["x"], **options)
    assert spaced.logprobs == pytest.approx(plain.logprobs, abs=1e-4)
    assert spaced.token == model.classify(["x "])[0].token  # the token is read at the prompt's end


def test_one_label_alone_and_ten_thousand(model: MlxModel) -> None:
    [one] = model.classify(["ab"], labels=["no"])
    assert (one.label, one.probabilities, one.margin) == ("no", {"no": 1.0}, 1.0)
    assert one.logprobs is not None
    assert one.label_mass == pytest.approx(math.exp(one.logprobs["no"]), rel=1e-4)
    labels = [str(number) for number in range(10_000)]
    [many] = model.classify(["ab"], labels=labels)
    assert many.probabilities is not None
    assert list(many.probabilities) == labels
    assert sum(many.probabilities.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"labels": ["a", ""]}, core.InvalidOptionError, "labels"),
        ({"labels": ["a", "b", "a"]}, core.LabelError, "Duplicate label 'a'"),
        ({"labels": "a,b"}, core.InvalidOptionError, "labels"),
        ({"temperature": float("nan")}, core.InvalidOptionError, "temperature=nan"),
        ({"temperature": -1}, core.InvalidOptionError, "temperature=-1"),
        ({"top_p": 0}, core.InvalidOptionError, "top_p=0"),
        ({"seed": -1}, core.InvalidOptionError, "seed=-1"),
        ({"max_tokens": 3}, TypeError, "max_tokens"),
        ({"temprature": 1}, TypeError, "Did you mean 'temperature'"),
    ],
)
def test_wrong_options_raise_at_the_call(
    model: MlxModel, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.classify(["ab"], **options)
    with pytest.raises(error, match=message):
        model.classify([], **options)


def test_labels_with_equal_tokens_are_refused(model: MlxModel) -> None:
    # This tokenizer knows no byte of either label, so both are the space before them.
    with pytest.raises(core.LabelError, match="same tokens"):
        model.classify(["x"], labels=["\u00e9", "\u00e8"])


@pytest.mark.parametrize("labels_only", [False, True])
def test_a_label_of_hundreds_of_tokens_is_refused(model: MlxModel, labels_only: bool) -> None:
    for long in ("ab" * 300, "ab" * 50_000):
        with pytest.raises(core.LabelError, match=r"has \d+ tokens, and the limit is 256"):
            model.classify(["ab"], labels=["a", long], labels_only=labels_only)


def test_a_negative_max_tokens_in_a_config_is_refused() -> None:
    with pytest.raises(core.InvalidOptionError, match="max_tokens=-1"):
        core.GenerateConfig(max_tokens=-1)


def test_prompts_must_be_a_sequence_of_strings(model: MlxModel) -> None:
    with pytest.raises(TypeError, match="wrap a single one"):
        model.classify("ab")
    with pytest.raises(TypeError, match="prompt 1 is a int"):
        model.classify(["ab", 3])  # type: ignore[list-item]


def test_what_is_wrong_with_one_prompt_is_that_rows_error(model: MlxModel) -> None:
    prompts = ["ab", "", "no " * 100, "x\ud800y", "no"]
    results = model.classify(prompts, labels=["ab", "no"])
    kinds = [type(result.error) for result in results]
    assert kinds == [
        type(None),
        core.EmptyPromptError,
        core.PromptTooLongError,
        core.RequestError,
        type(None),
    ]
    too_long = results[2].error
    assert isinstance(too_long, core.PromptTooLongError)
    assert (too_long.length > 64, too_long.limit) == (True, 64)
    assert results[1].token is None
    assert [results[0], results[4]] == model.classify(["ab", "no"], labels=["ab", "no"])


def test_a_prompt_as_long_as_the_context_still_fits(checkpoint: Checkpoint) -> None:
    with Cpu().load_model(checkpoint(), core.LoadConfig(context_len=8)) as model:
        assert model.info.context_length == 8
        fits, not_any_more = model.classify([" no" * 8, " no" * 9])
        assert fits.error is None
        assert isinstance(not_any_more.error, core.PromptTooLongError)


def test_labels_fit_the_context_behind_their_prompt(checkpoint: Checkpoint) -> None:
    with Cpu().load_model(checkpoint(), core.LoadConfig(context_len=8)) as model:
        # " no ab" is two tokens, of which one is fed.
        over, fits = model.classify([" no" * 8, " no" * 7], labels=["no ab", "ab"])
        assert isinstance(over.error, core.PromptTooLongError)
        assert (over.error.length, over.error.limit) == (9, 8)
        assert fits.label is not None
        assert model.classify([" no" * 8], labels=["no", "ab"])[0].label is not None


def test_sampling_follows_its_options_and_its_seed(model: MlxModel) -> None:
    hot: dict[str, Any] = {"temperature": 5.0}
    [greedy] = model.classify(["ab"])
    [top_one] = model.classify(["ab"], top_k=1, **hot)
    assert top_one.token == greedy.token
    seeded = [model.classify(["ab", "no"], seed=s, **hot) for s in (0, 0, 1, 2, 3, 4)]
    assert seeded[0] == seeded[1]
    assert len({rows[0].token for rows in seeded if rows[0].token}) > 1
    [alone] = model.classify(["no"], seed=0, **hot)
    assert alone.token == seeded[0][1].token


def test_the_repeat_penalty_looks_at_the_prompt(model: MlxModel) -> None:
    changed = 0
    for prompt in PROMPTS:
        [free] = model.classify([prompt], return_logits=True)
        [punished] = model.classify([prompt], repeat_penalty=1e6)
        values = logits(free).copy()
        for token in set(model.encode(prompt)):
            values[token] *= 1e-6 if values[token] > 0 else 1e6
        assert punished.token is not None
        assert punished.token.id == int(values.argmax())
        changed += punished.token != free.token
    assert changed  # or the test could not tell


def test_cancel_and_timeout_become_errors_of_the_rows_that_did_not_run(model: MlxModel) -> None:
    cancel = threading.Event()
    cancel.set()
    for result in model.classify(PROMPTS, cancel=cancel):
        assert isinstance(result.error, core.GenerationCancelled)
    for result in model.classify(PROMPTS, timeout=1e-9):
        assert isinstance(result.error, core.GenerationTimeout)
    assert all(result.error is None for result in model.classify(PROMPTS))


class AfterLooks:
    """A cancel that is set once it was looked at so often."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_cancel_is_looked_at_between_micro_batches(checkpoint: Checkpoint) -> None:
    config = core.LoadConfig(options={"token_budget": 1})
    with Cpu().load_model(checkpoint(), config) as model:
        looks = 1 + model.info.num_layers
        results = model.classify(PROMPTS, cancel=AfterLooks(2 * looks))
    errors = [result.error for result in results]
    assert sum(error is None for error in errors) == 2
    assert sum(isinstance(error, core.GenerationCancelled) for error in errors) == 3


def test_cancel_is_looked_at_between_the_layers_of_one_prompt(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = 0
    real = Layer.__call__

    def counted(self: Layer, *rest: Any) -> Any:
        nonlocal layers
        layers += 1
        return real(self, *rest)

    monkeypatch.setattr(Layer, "__call__", counted)
    [result] = model.classify(PROMPTS[:1], cancel=AfterLooks(2))
    assert isinstance(result.error, core.GenerationCancelled)
    assert layers == 1


def test_out_of_memory_splits_the_batch_and_fails_only_the_row_that_does_not_fit(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = prefill.read
    longest = max(len(model.encode(prompt)) for prompt in PROMPTS)

    def scarce(decoder: Any, prompts: list[list[int]], *rest: Any, **options: Any) -> Any:
        if sum(map(len, prompts)) > 10 or longest in map(len, prompts):
            raise RuntimeError("[malloc] Unable to allocate 1 bytes")
        return real(decoder, prompts, *rest, **options)

    expected = model.classify(PROMPTS)
    monkeypatch.setattr(scheduler, "read", scarce)
    results = model.classify(PROMPTS)
    for prompt, result, whole in zip(PROMPTS, results, expected, strict=True):
        if len(model.encode(prompt)) == longest:
            assert isinstance(result.error, core.OutOfMemoryError)
        else:
            assert result == whole


def test_other_failures_of_the_device_are_not_swallowed(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(scheduler, "read", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        model.classify(["ab"])


def test_special_tokens_in_a_prompt_are_plain_text(model: MlxModel) -> None:
    eos = model._loaded.stop_ids
    assert eos
    assert not eos & set(model.encode("ab</s>"))


def test_many_threads_get_their_own_results(directory: Path) -> None:
    # To the last bit: what a row computes behind a kept prefix may differ in it.
    cold = core.LoadConfig(options={"prefix_cache": 0})
    with Cpu().load_model(directory, cold) as model:
        ask_from_many_threads(model)


def ask_from_many_threads(model: MlxModel) -> None:
    expected = {prompt: model.classify([prompt], labels=["ab", "no"]) for prompt in PROMPTS}
    found: dict[tuple[str, int], list[core.ClassifyResult]] = {}
    metrics: dict[tuple[str, int], core.GenerateMetrics] = {}

    def work(prompt: str, turn: int) -> None:
        found[prompt, turn] = model.classify([prompt], labels=["ab", "no"])
        metrics[prompt, turn] = model.metrics

    threads = [threading.Thread(target=work, args=(p, t)) for p in PROMPTS for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    for (prompt, turn), results in found.items():
        assert results == expected[prompt]
        assert metrics[prompt, turn].prompt_tokens == len(model.encode(prompt))


def test_metrics_count_what_was_run(model: MlxModel) -> None:
    model.classify(["ab ab", "", "no"])
    metrics = model.metrics
    assert metrics.prompt_tokens == len(model.encode("ab ab")) + len(model.encode("no"))
    assert metrics.generated_tokens == 2
    assert metrics.total_seconds >= metrics.prefill_seconds > 0
    assert metrics.peak_memory_bytes > 0


def test_the_options_object_is_left_alone(model: MlxModel) -> None:
    config = core.GenerateConfig(temperature=0.5, seed=1)
    before = repr(config)
    model.classify(["ab"], config, labels=["a", "b"])
    assert repr(config) == before


def test_closed_means_closed_and_twice_is_fine(model: MlxModel) -> None:
    model.close()
    model.close()
    for call in (
        lambda: model.classify(["ab"]),
        lambda: model.generate("ab"),
        lambda: model.encode("ab"),
        lambda: model.memory(),
    ):
        with pytest.raises(core.ModelClosedError):
            call()


def test_results_survive_pickling(model: MlxModel) -> None:
    results = model.classify(["ab", ""], labels=["ab", "no"], return_logits=True)
    again = pickle.loads(pickle.dumps(results))
    assert again[0] == results[0]
    assert again[0].logits == results[0].logits
    assert isinstance(again[1].error, core.EmptyPromptError)


def test_a_prompt_without_a_single_token_is_that_rows_error(model: MlxModel) -> None:
    unknown, known = model.classify(["é", "ab"], labels=["ab", "no"])  # no byte of it is known
    assert isinstance(unknown.error, core.EmptyPromptError)
    assert known == model.classify(["ab"], labels=["ab", "no"])[0]


def test_an_id_beyond_the_embedding_is_an_error_and_no_crash(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    file = directory / "tokenizer.json"
    file.write_text(re.sub(r'"Ġab":\s*\d+', '"Ġab":7000000', file.read_text()))
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        [broken, sound] = model.classify(["ab ab", "no"])
    assert isinstance(broken.error, core.RequestError)
    assert sound.error is None


def test_weights_that_are_not_numbers_are_an_error(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    file = directory / "model.safetensors"
    tensors = mx.load(str(file))
    assert isinstance(tensors, dict)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * float("nan")
    mx.eval(list(tensors.values()))
    file.unlink()
    mx.save_safetensors(str(file), tensors)
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        [result] = model.classify(["ab"], labels=["ab", "no"])
    assert isinstance(result.error, core.InvalidModelError)
    assert result.probabilities is None


def test_a_model_does_not_hang_in_a_fork(checkpoint: Checkpoint) -> None:
    code = (
        "import os, sys, core\n"
        "model = core.load_model(sys.argv[1], backend='mlx_cpu')\n"
        "model.classify(['ab'])\n"
        "if os.fork() == 0:\n"
        "    for call in (lambda: model.classify(['ab']),\n"
        "                 lambda: core.load_model(sys.argv[1], backend='mlx_cpu')):\n"
        "        try:\n"
        "            call()\n"
        "        except core.CoreError as error:\n"
        "            print(type(error).__name__, 'spawn' in str(error), flush=True)\n"
        "    model.close()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "model.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(checkpoint())],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == ["ModelClosedError", "True", "BackendUnavailableError", "True"]
