"""Checks of prompts as token ids: what comes out is what the text of the ids comes to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from core.errors import EmptyPromptError, InvalidOptionError
from core.extensions import TokenPrompts
from core.protocols import Capability
from core.types import Token, TokenSequence
from core_conformance.checking import ask
from core_conformance.checking.ask import EVEN, Answer, generate, score, tokenizing
from core_conformance.checking.calls import must_raise
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.compare import near, same_answers, same_draws, same_speech
from core_conformance.checking.subject import Subject

_NEEDS = (Capability.TOKEN_PROMPTS, Capability.TOKENIZING)
_PROMPTS = (ask.LONG, ask.SHORT, ask.QUESTION, *ask.PLAIN[1:4])
_TOKENS, _STEPS, _SAMPLES, _SEED = 8, 4, 3, 7
_SILENT = "no prompt tried is continued by any token: use a model that generates text"


@check(
    "tokens.results",
    "There MUST be num_samples sequences for each prompt, side by side and in order; each has the "
    "prompt's ids and those that were generated, says which are which, and has a logprob for each "
    "of these if asked, else none",
    *_NEEDS,
)
def sequences_are_whole(subject: Subject) -> None:
    rows = _rows(subject)
    for sequence, row in zip(_run(subject, rows), rows, strict=True):
        _is_whole(subject, sequence, row)
        many = sum(sequence.generated) if _told(subject) else 0
        must(
            len(sequence.logprobs) == many,
            f"{many} tokens were generated with return_logprobs, and {sequence!r} has "
            f"{len(sequence.logprobs)} logprobs",
        )
    model = _tokens_of(subject)
    twice = model.generate_tokens(rows, max_tokens=2, num_samples=2)
    must(len(twice) == 2 * len(rows), f"{len(rows)} prompts, twice, gave {len(twice)} sequences")
    for place, sequence in enumerate(twice):
        _is_whole(subject, sequence, rows[place // 2])
        must(not sequence.logprobs, f"logprobs were not requested, and {sequence!r} has some")
    must(model.generate_tokens([]) == [], "generate_tokens([]) is not []")
    alone = model.generate_tokens(rows[0], max_tokens=2)
    must(len(alone) == 1, f"one prompt that is not a list of prompts gave {len(alone)} sequences")


@check(
    "tokens.texts",
    "The ids that encode() makes of a text MUST be continued as the text is, in a batch as alone",
    *_NEEDS,
    Capability.GENERATE,
)
def ids_are_their_text(subject: Subject) -> None:
    answers = _answers(subject, _run(subject, _rows(subject)))
    expected = [generate(subject, prompt, _TOKENS) for prompt in _PROMPTS]
    same_speech(subject, _paired(expected, answers), "generate, and generate_tokens of its ids")


@check(
    "tokens.padding",
    "Padding on the left that attention_mask marks, with 0 or with False, MUST NOT change a "
    "sequence, whatever it is",
    *_NEEDS,
)
def padding_is_not_read(subject: Subject) -> None:
    rows = _rows(subject)
    width = max(map(len, rows)) + 3
    ragged = _answers(subject, _run(subject, rows))

    # Padded on the left, with an id that is never read and with one that a prompt has.
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    marks: list[list[list[int]]] = [mask, [[bool(mark) for mark in row] for row in mask]]
    for filler, mask in zip((0, rows[0][-1]), marks, strict=True):
        padded = [[filler] * (width - len(row)) + row for row in rows]
        sequences = _tokens_of(subject).generate_tokens(
            padded, attention_mask=mask, max_tokens=_TOKENS, **_told(subject)
        )
        for row, sequence in zip(rows, sequences, strict=True):
            _is_whole(subject, sequence, row)
        same_speech(
            subject,
            _paired(ragged, _answers(subject, sequences)),
            f"alone, and padded with the id {filler}",
        )


@check(
    "tokens.mask",
    "A mask of another shape, one with a hole, padding on the right, and anything but an id MUST "
    "raise InvalidOptionError at the call, of generate_tokens, stream_tokens and score_tokens; "
    "anything but a list of ids is a TypeError",
    *_NEEDS,
)
def wrong_masks_are_refused(subject: Subject) -> None:
    model, rows = cast("Any", subject.model), [[1, 2, 3], [3, 2, 1]]
    for mask in ([[1, 1, 0], [1, 1, 1]], [[1, 0, 1], [1, 1, 1]], [[1, 1], [1, 1]], [[1, 1, 1]]):
        call = partial(model.generate_tokens, rows, attention_mask=mask, max_tokens=1)
        must_raise(InvalidOptionError, call, f"generate_tokens with attention_mask={mask}")
    wrong: Any
    for wrong in ([[1, -1]], [[1, 0.5]], [["a"]], "abc", 5, None):
        kind = InvalidOptionError if isinstance(wrong, list) else TypeError
        call = partial(model.generate_tokens, wrong, max_tokens=1)
        must_raise(kind, call, f"generate_tokens({wrong!r})")
        for given in ((wrong, [[1]]), ([[1]], wrong)):
            must_raise(kind, partial(model.score_tokens, *given), f"score_tokens{given!r}")
        one = wrong[0] if isinstance(wrong, list) else wrong
        call = partial(model.stream_tokens, one, max_tokens=1)
        must_raise(kind, call, f"stream_tokens({one!r})")
    for samples in (0, -1, 1.5):
        call = partial(model.generate_tokens, rows, num_samples=samples, max_tokens=1)
        must_raise(InvalidOptionError, call, f"generate_tokens with num_samples={samples}")


@check(
    "tokens.samples",
    "Samples with a seed MUST be drawn again alike, the first as generate draws it, and not all be "
    "the same; greedy samples are equal",
    *_NEEDS,
    Capability.GENERATE,
    Capability.SEED,
)
def samples_have_their_draws(subject: Subject) -> None:
    rows, model = _rows(subject), _tokens_of(subject)
    drawn: dict[str, Any] = {"seed": _SEED, "num_samples": _SAMPLES, "max_tokens": _STEPS, **EVEN}
    drawn |= _told(subject)
    once, again = (
        _answers(subject, model.generate_tokens(rows, **drawn), _SAMPLES) for _ in range(2)
    )
    same_draws(subject, _paired(once, again), "samples with one seed, drawn twice")

    alone = [generate(subject, prompt, _STEPS, seed=_SEED, **EVEN) for prompt in _PROMPTS]
    first = once[::_SAMPLES]
    same_draws(subject, _paired(alone, first), "what generate draws, and the first sample")
    testable(any(answer.ids for answer in once), _SILENT)

    # Samples of one prompt differ by chance alone; greedy ones never.
    groups = [once[n : n + _SAMPLES] for n in range(0, len(once), _SAMPLES)]
    must(
        any(sample.ids != group[0].ids for group in groups for sample in group),
        f"all {_SAMPLES} samples of each prompt are the same",
    )
    greedy = _answers(
        subject, model.generate_tokens(rows, num_samples=2, max_tokens=_TOKENS, **_told(subject)), 2
    )
    same_answers(subject, _paired(greedy[::2], greedy[1::2]), "two greedy samples")


@check(
    "tokens.stream",
    "stream_tokens MUST give the tokens that generate gives after the text of the ids",
    *_NEEDS,
    Capability.GENERATE,
)
def streams_are_of_their_text(subject: Subject) -> None:
    rows, model = _rows(subject), _tokens_of(subject)
    expected = [generate(subject, prompt, _TOKENS) for prompt in _PROMPTS]
    read = [
        ask.read(model.stream_tokens(row, max_tokens=_TOKENS, **_told(subject)), prompt)
        for row, prompt in zip(rows, _PROMPTS, strict=True)
    ]
    same_speech(subject, _paired(expected, read), "generate, and stream_tokens of its ids")
    # Where the tokens are the same, so are their texts.
    wrong = [
        one.text
        for one, two in zip(read, expected, strict=True)
        if one.ids == two.ids != () and (one.text != two.text)
    ]
    must(not wrong, f"the tokens of generate have other texts in stream_tokens: {wrong!r}")


@check(
    "tokens.scores",
    "score_tokens MUST say of ids what score says of their texts, and score a text from its "
    "beginning after its first token",
    *_NEEDS,
    Capability.SCORING,
)
def scores_are_of_their_text(subject: Subject) -> None:
    encode, model = tokenizing(subject).encode, _tokens_of(subject)
    heads, tails, expected = [], [], []
    for prompt, head in zip(_PROMPTS, _rows(subject), strict=True):
        whole = encode(f"{prompt} and so on")
        if whole[: len(head)] == head and len(whole) > len(head):
            heads.append(head)
            tails.append(whole[len(head) :])
            expected.append(score(subject, [prompt], [" and so on"])[0])
    testable(bool(heads), "the tokenizer joins the words tried with the prompt's end")
    scores = model.score_tokens(heads, tails)
    for row, one, two in zip(tails, scores, expected, strict=True):
        must(
            one.error is None
            and len(one.token_logprobs) == len(row)
            and all(near(subject, *pair) for pair in _pairs(one, two))
            and near(subject, one.logprob, two.logprob, len(row)),
            f"score_tokens says {one!r} of what score says {two!r}",
        )

    # From the first token on: the parts of a text come to the whole.
    ids = encode(ask.LONG)
    [all_of_it] = model.score_tokens([ids[:1]], [ids[1:]])
    cut = len(ids) // 2
    parts = model.score_tokens([ids[:1], ids[:cut]], [ids[1:cut], ids[cut:]])
    together = sum(part.logprob for part in parts)
    must(
        all_of_it.error is None and near(subject, all_of_it.logprob, together, len(ids)),
        f"a text from its first token scores {all_of_it.logprob:.4f}, in two parts {together:.4f}",
    )


@check(
    "tokens.error-rows",
    "An empty prompt and an id beyond the vocabulary MUST be the errors of their rows, an "
    "EmptyPromptError the first; the others finish",
    *_NEEDS,
)
def errors_stay_in_their_rows(subject: Subject) -> None:
    row, beyond = _rows(subject)[0], subject.model.info.vocab_size
    [alone] = _run(subject, [row])
    results = _tokens_of(subject).generate_tokens(
        [[], row, [1, beyond]], max_tokens=_TOKENS, **_told(subject)
    )

    # An error for each broken prompt, and none for the sound one between them.
    must(len(results) == 3, f"three prompts gave {len(results)} sequences")
    must(
        isinstance(results[0].error, EmptyPromptError) and results[0].finish_reason == "error",
        f"a prompt without ids is {results[0]!r}: an EmptyPromptError was expected",
    )
    must(
        results[2].error is not None,
        f"a prompt with the id {beyond}, of {beyond} that there are, has no error",
    )
    must(results[1].error is None, f"alongside two broken prompts, one has {results[1].error!r}")
    pair = (_answers(subject, [alone])[0], _answers(subject, [results[1]])[0])
    same_answers(subject, [pair], "alone, and alongside two broken prompts")

    scores = _tokens_of(subject).score_tokens([[], row, row], [[1], row[-1:], []])
    errors = [result.error for result in scores]
    must(
        isinstance(errors[0], EmptyPromptError) and errors[1] is None and errors[2] is not None,
        f"score_tokens of no prompt, a sound pair, and no continuation has the errors {errors!r}",
    )


def _tokens_of(subject: Subject) -> TokenPrompts:
    return cast("TokenPrompts", subject.model)


def _rows(subject: Subject) -> list[list[int]]:
    rows = [tokenizing(subject).encode(prompt) for prompt in _PROMPTS]
    well_formed(all(rows), "encode() gave no id for a text")
    return rows


def _told(subject: Subject) -> dict[str, Any]:
    return ask.evidence(subject)


def _run(subject: Subject, rows: Sequence[Sequence[int]]) -> list[TokenSequence]:
    """Return greedy sequences of sound prompts: one for each, without errors."""
    model = _tokens_of(subject)
    results: Any = model.generate_tokens(rows, max_tokens=_TOKENS, **_told(subject))
    well_formed(
        isinstance(results, list) and len(results) == len(rows),
        f"generate_tokens() of {len(rows)} prompts did not give a list of as many sequences",
    )
    for sequence in results:
        well_formed(
            isinstance(sequence, TokenSequence) and sequence.error is None,
            f"generate_tokens() gave a sound prompt {sequence!r}",
        )
    sequences: list[TokenSequence] = results
    return sequences


def _is_whole(subject: Subject, sequence: TokenSequence, row: Sequence[int]) -> None:
    new = len(sequence.ids) - len(row)
    must(
        list(sequence.ids[: len(row)]) == list(row)
        and sequence.generated == (False,) * len(row) + (True,) * new,
        f"the sequence {sequence!r} is not the prompt {list(row)} and what comes after it",
    )
    size = subject.model.info.vocab_size
    must(all(0 <= id < size for id in sequence.ids), f"{sequence!r} has ids beyond the vocabulary")


def _answers(
    subject: Subject, sequences: Sequence[TokenSequence], samples: int = 1
) -> list[Answer]:
    """Return the generated sequences as answers, each with its ids' text as prompt."""
    answers, decode = [], tokenizing(subject).decode
    for place, sequence in enumerate(sequences):
        new = [id for id, mine in zip(sequence.ids, sequence.generated, strict=True) if mine]
        logprobs = sequence.logprobs or (None,) * len(new)
        tokens = tuple(
            Token(id, decode([id]), logprob) for id, logprob in zip(new, logprobs, strict=False)
        )
        answers.append(Answer(tokens, sequence.finish_reason, _PROMPTS[place // samples]))
    return answers


def _paired(one: Sequence[Answer], other: Sequence[Answer]) -> list[tuple[Answer, Answer]]:
    return list(zip(one, other, strict=True))


def _pairs(one: Any, other: Any) -> list[tuple[float, float]]:
    return list(zip(one.token_logprobs, other.token_logprobs, strict=False))
