"""Checks of scores, and of labels against scores: joint log-probabilities of several tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.errors import EmptyPromptError
from core.protocols import Capability
from core.types import Score
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import Answer, classify, generate, score, scoring, tokenizing
from core_conformance.checking.calls import CHAT
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import allowance, logprobs_by_steps, near, steps
from core_conformance.checking.subject import Subject

_CONTINUATIONS = tuple(f" {words}" for words in (*ask.SEVERAL_WORDS, *ask.LABELS))
_JOINED = (
    "the tokenizer merges every text tried with the prompt's end, so its tokens cannot be "
    "identified: use a model with another tokenizer"
)
_OTHER = " zyx qqq"


@check(
    "scoring.results",
    "A score MUST be the sum of its tokens' log-probabilities, one score per pair in order",
    Capability.SCORING,
)
def scores_are_sums(subject: Subject) -> None:
    scores = score(subject, [ask.QUESTION] * len(_CONTINUATIONS), _CONTINUATIONS)
    for continuation, result in zip(_CONTINUATIONS, scores, strict=True):
        parts = result.token_logprobs
        must(
            bool(parts) and all(part <= 1e-6 for part in parts),
            f"{continuation!r} has the token_logprobs {parts!r}: logarithms of probabilities, one "
            "for each of its tokens, were expected",
        )
        must(
            result.logprob == math.fsum(parts) or abs(result.logprob - math.fsum(parts)) <= 1e-3,
            f"{continuation!r} has logprob={result.logprob}, and its tokens sum to "
            f"{math.fsum(parts)}",
        )
    must(scoring(subject).score([], []) == [], "score([], []) is not []")


@check(
    "scoring.neighbours",
    "Other pairs of the same call MUST NOT change a score, nor its place",
    Capability.SCORING,
)
def neighbours_change_nothing(subject: Subject) -> None:
    pairs = [
        (ask.LONG, _CONTINUATIONS[0]),
        (ask.SHORT, _CONTINUATIONS[3]),
        (ask.QUESTION, _CONTINUATIONS[1]),
        (ask.HOSTILE[1], _CONTINUATIONS[2]),
    ]
    together = score(subject, [p for p, _ in pairs], [c for _, c in pairs])
    for (prompt, continuation), result in zip(pairs, together, strict=True):
        alone = score(subject, [prompt], [continuation])[0]
        must(
            near(subject, result.logprob, alone.logprob, len(alone.token_logprobs)),
            f"{continuation!r} after {prompt!r} scores {result.logprob:.5f} among others, and "
            f"{alone.logprob:.5f} alone",
        )


@check(
    "scoring.steps",
    "A token's log-probability MUST be what classify's logits say after the text before it",
    Capability.SCORING,
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
)
def scores_equal_steps(subject: Subject) -> None:
    comparable = False
    for continuation in _CONTINUATIONS[:3]:
        steps_of = steps(subject, ask.QUESTION, continuation)
        if steps_of is None:
            continue  # the tokenizer joins these words with the prompt's end
        comparable = True
        expected = logprobs_by_steps(subject, steps_of)
        logprobs = score(subject, [ask.QUESTION], [continuation])[0].token_logprobs
        must(
            len(logprobs) == len(expected)
            and all(near(subject, a, b) for a, b in zip(logprobs, expected, strict=True)),
            f"{continuation!r} has the token_logprobs {_shown(logprobs)}; step by step classify "
            f"says {_shown(expected)}",
        )
    testable(comparable, _JOINED)


@check(
    "labels.steps",
    "A label's logprob MUST be the joint log-probability of all its tokens, step by step",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.LOGITS,
    Capability.TOKENIZING,
)
def labels_equal_steps(subject: Subject) -> None:
    labels = (*ask.SEVERAL_WORDS, ask.LABELS[0])
    logprobs = classify(subject, [ask.QUESTION], labels=labels)[0].logprobs or {}
    comparable = False
    for label in labels:
        steps_of = steps(subject, ask.QUESTION, f" {label}")
        if steps_of is None:
            continue
        comparable = True
        expected = logprobs_by_steps(subject, steps_of)
        must(
            near(subject, logprobs.get(label, math.nan), math.fsum(expected), len(expected)),
            f"{label!r} has the logprob {logprobs.get(label)}; its {len(expected)} tokens step by "
            f"step have {_shown(expected)}, together {math.fsum(expected):.4f}",
        )
    testable(comparable, _JOINED)


@check(
    "labels.scores",
    "A label's logprob MUST be what score says of label_prefix + label",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.SCORING,
)
def labels_equal_scores(subject: Subject) -> None:
    labels = (*ask.SEVERAL_WORDS, *ask.LABELS)
    values = classify(subject, [ask.QUESTION], labels=labels)[0].logprobs or {}
    scores = score(subject, [ask.QUESTION] * len(labels), [f" {label}" for label in labels])
    for label, result in zip(labels, scores, strict=True):
        must(
            near(
                subject,
                values.get(label, math.nan),
                result.logprob,
                len(result.token_logprobs) + 1,
            ),
            f"{label!r} has the logprob {values.get(label)} as a label, and {result.logprob} as a "
            "continuation",
        )


@check(
    "scoring.greedy",
    "is_greedy MUST say whether greedy decoding would have produced exactly this continuation",
    Capability.SCORING,
    Capability.GENERATE,
    Capability.TOKENIZING,
)
def greedy_is_greedy(subject: Subject) -> None:
    answers = [(prompt, generate(subject, prompt, 4)) for prompt in ask.PLAIN[:4]]
    goes_on(subject, [answer.tokens for _, answer in answers])
    reread = [(prompt, answer) for prompt, answer in answers if _is_reread(subject, prompt, answer)]
    missed = [prompt for prompt, answer in reread if _denied(subject, prompt, answer)]
    # Greedy decoding and scoring may part at a tie.
    ties = allowance(subject, [(answer, answer) for _, answer in answers], always=0)
    must(
        len(missed) <= ties,
        f"score says is_greedy=False of what greedy decoding makes of {missed}",
    )

    # Other text than the model's own has to score as not greedy, though it continues as the model.
    for prompt, answer in answers:
        other = _OTHER if not answer.text.startswith(_OTHER[:2]) else _CONTINUATIONS[0]
        for text in (other, other + generate(subject, prompt + other, 1).text):
            scored = score(subject, [prompt], [text])[0]
            must(
                not scored.is_greedy or _as_likely(subject, prompt, answer, scored),
                f"score says is_greedy=True of {text!r} after {prompt!r}; greedy decoding makes "
                f"{answer.text!r}",
            )
    testable(bool(reread), _JOINED)


@check(
    "scoring.error-rows",
    "An error in one pair MUST be its row's error; the other rows finish",
    Capability.SCORING,
)
def errors_stay_in_their_rows(subject: Subject) -> None:
    alone = score(subject, [ask.QUESTION], [_CONTINUATIONS[0]])[0]
    scores = scoring(subject).score(["", ask.QUESTION], [_CONTINUATIONS[0], _CONTINUATIONS[0]])
    must(len(scores) == 2, f"two pairs gave {len(scores)} scores")
    must(
        isinstance(scores[0].error, EmptyPromptError),
        f"a pair with an empty prompt has error={scores[0].error!r}, not an EmptyPromptError",
    )
    must(
        scores[1].error is None
        and near(subject, scores[1].logprob, alone.logprob, len(alone.token_logprobs)),
        f"next to an empty prompt, a pair scores {scores[1]!r}, and alone {alone!r}",
    )


def _is_reread(subject: Subject, prompt: str, answer: Answer) -> bool:
    """Return whether the answer's text is read as the tokens that it came in."""
    encode = tokenizing(subject).encode
    reads = encode(prompt + answer.text) == [*encode(prompt), *answer.ids]
    return bool(answer.text) and reads


def _denied(subject: Subject, prompt: str, answer: Answer) -> bool:
    """Return True when score says that a greedy answer is not greedy."""
    return not score(subject, [prompt], [answer.text])[0].is_greedy


def _as_likely(subject: Subject, prompt: str, answer: Answer, other: Score) -> bool:
    """Return whether each token of another text ties with the likeliest of a greedy answer."""
    if not answer.text:
        return False
    likeliest = max(score(subject, [prompt], [answer.text])[0].token_logprobs)
    return min(other.token_logprobs) >= likeliest - 2 * subject.tolerance


def _shown(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.4f}" for value in values) + "]"


@check(
    "chat.continued",
    "Labels MUST be read, and continuations scored, after what render_chat gives: plain text "
    "after the template's own",
    Capability.CHAT,
    Capability.TOKENIZING,
    (Capability.LABELS, Capability.SCORING),
)
def plain_text_after_a_template(subject: Subject) -> None:
    rendered = tokenizing(subject).render_chat(CHAT)
    if subject.declares(Capability.LABELS, Capability.CLASSIFY):
        [result] = classify(subject, [rendered], labels=ask.LABELS)
        must(
            result.label in ask.LABELS,
            f"labels={ask.LABELS} after what render_chat() gave have {result!r:.200}",
        )
    if subject.declares(Capability.SCORING):
        [score_of] = score(subject, [rendered], [_CONTINUATIONS[0]])
        most = len(tokenizing(subject).encode(_CONTINUATIONS[0])) + 1  # one spans the border
        must(
            0 < len(score_of.token_logprobs) <= most,
            f"a continuation of at most {most} tokens after what render_chat() gave has "
            f"{score_of!r:.200}",
        )
