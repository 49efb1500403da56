"""Logits that are NaN or infinite are their row's error, in every operation; neighbours stay.

A backend's test module imports these tests, and has a fixture ``model`` with weights of `mark`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import core
from core_runtime.sequences.model import SequenceModel
from core_runtime.sequences.session import Session

Weights = dict[str, np.ndarray]

TARGET = "~"  # the token whose logit becomes infinite
PLUS, MINUS, NAN = "!", "?", "#"  # after these it is +inf, -inf; or all logits are NaN
TO_PLUS, TO_NAN = "$", "%"  # after these, the next token is PLUS, or NAN
INF, LEAD_PLUS, LEAD_NAN = 0, 1, 2  # the coordinates of the residual stream that do it
SOUND = ["ab b", "a", "ab ab ab ab ab ab", "b a b"]
LABELS = ["ab", "b", "ab b"]


class Names(NamedTuple):
    """The names of tensors in a checkpoint: of matrices that write to the stream, by their ends."""

    writers: tuple[str, ...]
    norm: str
    embedding: str
    head: str


def token(text: str) -> int:
    return 2 + ord(text) - 33


def mark(weights: Weights, names: Names) -> None:
    """Change weights so that the texts above do as their comments say, and nothing else does.

    Three coordinates of the residual stream are written by the embedding alone.
    """
    special = [INF, LEAD_PLUS, LEAD_NAN]
    for name, array in weights.items():
        if name.endswith(names.writers):
            array[special] = 0.0
    weights[names.norm][special] = 1.0

    embedding, rows = weights[names.embedding], weights[names.head]
    embedding[:, special] = 0.0
    embedding[token(PLUS), INF], embedding[token(MINUS), INF] = 30.0, -30.0
    embedding[token(TO_PLUS), LEAD_PLUS] = embedding[token(TO_NAN), LEAD_NAN] = 30.0
    embedding[token(NAN)] = np.nan
    rows[[token(TARGET), token(PLUS), token(NAN)]] = 0.0
    rows[token(TARGET), INF] = 3e38
    rows[token(PLUS), LEAD_PLUS] = rows[token(NAN), LEAD_NAN] = 100.0


def broken(error: Exception | None, values: str = "logits") -> bool:
    return isinstance(error, core.InvalidModelError) and f"model's {values}" in str(error)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_logits": True},
        {"return_logprobs": True},
        {"temperature": 1.0, "seed": 1, "top_p": 0.9, "typical_p": 0.9, "repeat_penalty": 1.3},
        {"labels": LABELS},
        {"labels": LABELS, "labels_only": True},
        {"labels": [TARGET, "a"], "label_prefix": "", "labels_only": True},
    ],
    ids=str,
)
def test_classify(model: SequenceModel, options: dict[str, Any]) -> None:
    bad = [NAN, PLUS]
    prompts = [text for pair in zip(SOUND, bad * 2, strict=True) for text in pair]
    alone = [model.classify([text], **options)[0] for text in prompts]
    together = model.classify(prompts, **options)
    for results in (together, list(model.classify_iter(iter(prompts), **options)), alone):
        for prompt, result, wanted in zip(prompts, results, alone, strict=True):
            if prompt in bad:
                assert broken(result.error)
                assert (result.token, result.label, result.logits) == (None, None, None)
            else:
                assert (result.error, result.label) == (None, wanted.label)
                assert (result.token and result.token.id) == (wanted.token and wanted.token.id)
                assert result.probabilities == (
                    wanted.probabilities and pytest.approx(wanted.probabilities, abs=1e-4)
                )


def test_one_impossible_token_is_no_error(model: SequenceModel) -> None:
    """A file may suppress tokens, which have the logit -infinity."""
    [result] = model.classify([MINUS], return_logits=True, return_logprobs=True)
    assert result.error is None
    assert result.logits is not None
    assert result.logits[token(TARGET)] == -np.inf
    assert np.isfinite(np.delete(np.array(result.logits), token(TARGET))).all()
    [result] = model.classify([MINUS], labels=["a", TARGET], label_prefix="")
    assert result.probabilities == {"a": 1.0, TARGET: 0.0}
    [score] = model.score([MINUS], [TARGET])
    assert (score.error, score.logprob) == (None, -np.inf)
    assert model.batch_generate([MINUS], max_tokens=1, temperature=1.0)[0].error is None


def test_labels_that_are_broken_after_the_prompt_are_an_error(model: SequenceModel) -> None:
    labels = ["a", f"{PLUS}a", "b"]
    for only in (False, True):
        rows = model.classify(["ab b", "a"], labels=labels, label_prefix="", labels_only=only)
        assert [broken(row.error) for row in rows] == [True, True]
        [sound] = model.classify(["a"], labels=labels[::2], label_prefix="", labels_only=only)
        assert sound.error is None


ENDS = {PLUS: [], NAN: [], TO_PLUS: [token(PLUS)], TO_NAN: [token(NAN)]}


@pytest.mark.parametrize("heat", [0.0, 1e-3])
def test_batches(model: SequenceModel, heat: float) -> None:
    prompts = [text for pair in zip(SOUND, ENDS, strict=True) for text in pair]
    options: dict[str, Any] = {"max_tokens": 6, "temperature": heat, "seed": 3}
    alone = [model.batch_generate([text], **options)[0] for text in prompts]
    results = model.batch_generate(prompts, **options)  # more rows than slots: some take others'
    for prompt, result, wanted in zip(prompts, results, alone, strict=True):
        assert [item.id for item in result.tokens] == [item.id for item in wanted.tokens]
        if prompt in ENDS:
            assert broken(result.error)
            assert [item.id for item in result.tokens] == ENDS[prompt]
        else:
            assert result.error is None

    streamed: list[tuple[int, core.Token]] = []
    with pytest.raises(core.InvalidModelError):
        streamed.extend(model.batch_stream(prompts, **options))
    for row, wanted in enumerate(alone):
        found = [item.id for place, item in streamed if place == row]
        assert found == [item.id for item in wanted.tokens]


@pytest.mark.parametrize("prompt", ENDS)
@pytest.mark.parametrize("operation", ["generate", "submit", "chat", "stream_tokens"])
def test_streams_raise_at_the_token(model: SequenceModel, prompt: str, operation: str) -> None:
    config = core.GenerateConfig(max_tokens=6)
    if operation == "submit":
        stream = model.submit(prompt, config)
    elif operation == "stream_tokens":
        stream = model.stream_tokens(model.encode(prompt), config)
    elif operation == "chat":
        stream = model.chat([core.Message("user", prompt)], config)
    else:
        stream = model.generate(prompt, config)
    found: list[int] = []
    with pytest.raises(core.InvalidModelError, match="NaN or infinite"):
        found.extend(item.id for item in stream)
    assert (found, stream.finish_reason) == (ENDS[prompt], "error")
    assert model.batch_generate(["ab"], max_tokens=2)[0].error is None


def test_scores_and_hidden_states(model: SequenceModel) -> None:
    heads = ["ab b", PLUS, "a", NAN, "a", MINUS]
    tails = [" ab", "a", f"{PLUS}ab", "a", f" b{NAN}", "ab"]
    wrong = [False, True, True, True, False, False]  # nothing is read after the last token
    pairs = [(model.encode(h), model.encode(h + t)) for h, t in zip(heads, tails, strict=True)]
    given = model.score_tokens([h for h, _ in pairs], [all_[len(h) :] for h, all_ in pairs])
    for scores in (model.score(heads, tails), given):
        assert [broken(score.error) for score in scores] == wrong
        assert all(np.isfinite(score.logprob) for score in scores if score.error is None)

    rows = model.hidden_states(["ab", f"a{NAN}", PLUS])
    assert [broken(row.error, "hidden states") for row in rows] == [False, True, False]


def test_a_state_of_negative_infinity_is_an_error(
    model: SequenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = type(model._loaded.session)
    hidden = session.hidden

    def lowest(self: Session, index: int) -> Any:
        state = hidden(self, index).copy()
        state[1] = -np.inf
        return state

    monkeypatch.setattr(session, "hidden", lowest)
    assert broken(model.hidden_states(["ab"])[0].error, "hidden states")
