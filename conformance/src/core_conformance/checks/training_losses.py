"""Checks of what a training learns: which tokens, how often, and how far a step goes.

Most train at a rate at which no step moves anything that can be seen, so that losses of one model
can be compared. ``loss * learned`` are the nats of all tokens that a step has learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.errors import ChatTemplateError, CoreError
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample, TrainStep
from core.types import Message
from core_conformance.checking.ask import LABELS, PLAIN, trainable
from core_conformance.checking.calls import raised
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.subject import Subject

_STILL = 1e-9  # a rate
_FAR = 1e-2  # a rate at which a loss falls by more than noise
_CONFIG = TrainConfig(
    rank=4, scale=4.0, learning_rate=_STILL, batch_size=1, iterations=1, num_layers=2
)
_TEMPLATE = "It is said: {text}, and it is"
_PAIRS = tuple(zip(PLAIN[:4], (f" {text}" for text in PLAIN[1:5]), strict=True))
_EXAMPLES = tuple(TrainingExample(prompt=one, completion=two) for one, two in _PAIRS)
_SCALES = (0.25, 4.0)
_NO_TURNS = "the model's chat template takes no conversation of several turns: use another model"
_PER_TOKEN = 4  # tolerances: a log-probability is a difference of logits, and two are compared


@check(
    "training.labels",
    "The loss of a text with a label MUST be that of the label's tokens, after the template, "
    "where classify reads them",
    Capability.TRAINABLE,
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def labels_where_classify_reads_them(subject: Subject) -> None:
    with subject.loaded() as model:
        for text, label in zip(PLAIN, [*LABELS, *LABELS], strict=False):
            (row,) = model.classify([_TEMPLATE.replace("{text}", text)], labels=LABELS)
            read = -(row.raise_for_error().logprobs or {})[label]
            testable(math.isfinite(read), f"after {text!r} the label {label!r} is impossible")
            example = TrainingExample(text=text, label=label)
            step = _step(model, [example], template=_TEMPLATE, labels=LABELS)
            _same_nats(subject, step, read, f"{label!r} after {text!r}, trained and classified")


@check(
    "training.masked",
    "After a prompt, what is to be written there MUST be learned alone; with mask_prompt=False, "
    "and of a text alone, every token but the first",
    Capability.TRAINABLE,
)
def masked(subject: Subject) -> None:
    with subject.loaded() as model:
        for (prompt, completion), example in zip(_PAIRS, _EXAMPLES, strict=True):
            alone = _step(model, [example])
            further = replace(example, prompt=f"{PLAIN[4]} {prompt}")
            must(
                alone.learned == _step(model, [further]).learned,
                f"of {completion!r} {alone.learned} tokens are learned after {prompt!r}, and "
                "another number after a longer prompt",
            )
            whole = _step(model, [example], mask_prompt=False)
            must(
                alone.learned < whole.learned,
                f"{alone.learned} tokens of {prompt + completion!r} are learned with mask_prompt, "
                f"and {whole.learned} without",
            )
            text = _step(model, [TrainingExample(text=prompt + completion)])
            must(
                text.learned == whole.learned,
                f"{text.learned} tokens of the text {prompt + completion!r} are learned, and "
                f"{whole.learned} where it is a prompt and a completion, not masked",
            )
            nats = whole.loss * whole.learned
            _same_nats(subject, text, nats, "a text, and the same in two parts")
            must(
                whole.learned <= whole.tokens,
                f"{whole.learned} tokens were learned, of {whole.tokens} that ran",
            )


@check(
    "training.turns",
    "Of a conversation, all that the assistant says MUST be learned, and nothing else",
    Capability.TRAINABLE,
    Capability.CHAT,
    broad=True,
)
def turns(subject: Subject) -> None:
    testable(_takes_turns(subject), _NO_TURNS)
    with subject.loaded() as model:
        one = _step(model, [_conversation(PLAIN[0], PLAIN[1])])
        asked_longer = _step(model, [_conversation(f"{PLAIN[0]} {PLAIN[4]}", PLAIN[1])])
        must(
            one.learned == asked_longer.learned,
            f"of one answer {one.learned} tokens are learned, and {asked_longer.learned} after a "
            "longer question",
        )
        longer = _step(model, [_conversation(PLAIN[0], f"{PLAIN[1]} {PLAIN[4]}")])
        must(
            one.learned < longer.learned,
            f"of an answer {one.learned} tokens are learned, and {longer.learned} of a longer one",
        )
        two = _step(model, [_conversation(PLAIN[0], PLAIN[1], PLAIN[2], PLAIN[1])])
        must(
            two.learned >= 2 * one.learned,
            f"of two answers {two.learned} tokens are learned, and {one.learned} of one of them",
        )
        if subject.declares(Capability.SCORING, Capability.TOKENIZING):
            _after_its_question(subject, model, one)


@check(
    "training.epochs",
    "Every example MUST be learned once before any of them is learned again",
    Capability.TRAINABLE,
)
def epochs(subject: Subject) -> None:
    with subject.loaded() as model:
        single_steps = [_step(model, [example]) for example in _EXAMPLES]
        config = replace(_CONFIG, batch_size=2, iterations=2)
        steps = [*trainable(model).train(_EXAMPLES, config)]
        learned = sum(step.learned for step in steps)
        must(
            learned == sum(one.learned for one in single_steps),
            f"{learned} tokens were learned in an epoch of {len(single_steps)} examples, and "
            f"{sum(one.learned for one in single_steps)} where each was learned alone",
        )
        nats = sum(step.loss * step.learned for step in steps)
        whole = TrainStep(2, nats / learned, 0, 0.0, learned)
        alone = sum(one.loss * one.learned for one in single_steps)
        _same_nats(
            subject, whole, alone, f"an epoch of {len(single_steps)} examples, and each alone"
        )


@check(
    "training.longest",
    "An example of max_tokens tokens MUST be trained, and one of more MUST raise a CoreError at "
    "the call",
    Capability.TRAINABLE,
)
def longest(subject: Subject) -> None:
    with subject.loaded() as model:
        for example in _EXAMPLES[:2]:
            tokens = _step(model, [example], mask_prompt=False).learned + 1  # the first is not
            step = _step(model, [example], max_tokens=tokens)
            must(step.learned > 0, f"with max_tokens={tokens} a step is reported as {step}")
            config = replace(_CONFIG, max_tokens=tokens - 1)
            error = raised(lambda: trainable(model).train([example], config))  # noqa: B023
            must(
                isinstance(error, CoreError),
                f"train() of an example of {tokens} tokens with max_tokens={tokens - 1} "
                f"raised {error!r}",
            )


@check(
    "training.scale",
    "The output of an adapter MUST be multiplied by its scale, whether given or made of alpha",
    Capability.TRAINABLE,
)
def scale(subject: Subject) -> None:
    falls = {}
    for by in _SCALES:
        for name, value in {"scale": by, "alpha": by * _CONFIG.rank}.items():
            options: Any = {name: value, "learning_rate": _FAR, "iterations": 2}
            with subject.loaded() as model:
                first, second = trainable(model).train(_EXAMPLES[:1], replace(_CONFIG, **options))
            falls[by, name] = first.loss - second.loss
    noise = _PER_TOKEN * subject.tolerance
    (little, _), (much, _) = ((falls[by, "scale"], falls[by, "alpha"]) for by in _SCALES)
    testable(abs(much) > 2 * noise, f"a step of rate {_FAR} moves the loss by {much:.2g} only")
    for by in _SCALES:
        apart = abs(falls[by, "scale"] - falls[by, "alpha"])
        must(
            apart <= noise + falls[by, "scale"] / 10,
            f"with scale={by} the loss falls by {falls[by, 'scale']:.3g}, and by "
            f"{falls[by, 'alpha']:.3g} with the alpha that makes the same of rank {_CONFIG.rank}",
        )
    must(
        little < much - noise,
        f"a step lets the loss fall by {little:.3g} with scale={_SCALES[0]}, and by {much:.3g} "
        f"with {_SCALES[1]}",
    )


@check(
    "training.defaults",
    "Without a config a model MUST be trained as with TrainConfig()",
    Capability.TRAINABLE,
)
def defaults(subject: Subject) -> None:
    with subject.loaded() as model, subject.loaded() as other:
        without = next(trainable(model).train(_EXAMPLES))
        spelled = next(trainable(other).train(_EXAMPLES, TrainConfig()))
    must(
        without.steps == spelled.steps and without.learned == spelled.learned,
        f"the first step is reported as {without} without config, but {spelled} with TrainConfig()",
    )
    _same_nats(subject, without, spelled.loss * spelled.learned, "without a config, and with one")


def _takes_turns(subject: Subject) -> bool:
    """Return whether the model has a chat template, and it takes an answer between questions."""
    turns = _conversation(*PLAIN[:3]).messages
    error = raised(lambda: list(subject.model.chat(turns, max_tokens=1)))
    return not isinstance(error, ChatTemplateError)


def _after_its_question(subject: Subject, model: Any, step: TrainStep) -> None:
    """Check a learned answer's loss against `score`, as far as its end is not learned too."""
    prompt = model.render_chat([Message("user", PLAIN[0])])
    (read,) = model.score([prompt], [PLAIN[1]])
    nats, more = step.loss * step.learned, step.learned - len(read.token_logprobs)
    noise = _PER_TOKEN * subject.tolerance * step.learned
    must(
        nats >= -read.logprob - noise and (more != 0 or nats <= -read.logprob + noise),
        f"{PLAIN[1]!r} after its question was learned at {nats:.6g} nats in {step.learned} "
        f"tokens, and score() reads {-read.logprob:.6g} in {len(read.token_logprobs)}",
    )


def _same_nats(subject: Subject, step: TrainStep, nats: float, what: str) -> None:
    total = step.loss * step.learned
    must(
        step.learned > 0 and abs(total - nats) <= _PER_TOKEN * subject.tolerance * step.learned,
        f"{what}: {total:.6g} and {nats:.6g} nats, over {step.learned} learned tokens",
    )


def _conversation(*texts: str) -> TrainingExample:
    """Return an example of user and assistant turns."""
    roles = ("user", "assistant")
    messages = [Message(roles[turn % 2], words) for turn, words in enumerate(texts)]  # type: ignore[arg-type]
    return TrainingExample(messages=tuple(messages))


def _step(model: TextModel, examples: Sequence[TrainingExample], **options: Any) -> TrainStep:
    """Return the only step of a training that changes no weight."""
    (step,) = trainable(model).train(examples, replace(_CONFIG, **options))
    return step
