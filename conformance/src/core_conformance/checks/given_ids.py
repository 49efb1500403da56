"""Checks that ids are read as they are given: repeated, special, in any place."""

from __future__ import annotations

from typing import cast

from core.extensions import TokenPrompts
from core.protocols import Capability
from core.types import Message
from core_conformance.checking.applies import has_template
from core_conformance.checking.ask import PLAIN, tokenizing
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import near
from core_conformance.checking.subject import Subject

_HELLO = [Message("user", "Hello")]
_SILENT = "no prompt of ids is continued by any token: use a model that generates text"


@check(
    "tokens.unchanged",
    "Ids MUST be read unchanged: a first one that comes twice, and special ones at the end",
    Capability.TOKEN_PROMPTS,
    Capability.TOKENIZING,
    Capability.LOGPROBS,
)
def ids_are_read_unchanged(subject: Subject) -> None:
    # score_tokens has the same ids in its continuation, after the first of them alone.
    model, heard = cast("TokenPrompts", subject.model), 0
    for row in _rows(subject):
        for samples in (1, 2):
            options = {"max_tokens": 1, "return_logprobs": True, "num_samples": samples}
            [sequence, *_] = model.generate_tokens([row], **options)  # type: ignore[arg-type]
            must(sequence.error is None, f"the ids {row} have the error {sequence.error!r}")
            must(
                list(sequence.ids[: len(row)]) == row,
                f"the sequence of the ids {row} begins with {sequence.ids[: len(row)]}",
            )
            if not sequence.logprobs:
                continue  # the model ends there
            heard += 1
            [score] = model.score_tokens([row[:1]], [[*row[1:], sequence.ids[-1]]])
            must(
                len(score.token_logprobs) == len(row)
                and near(subject, score.token_logprobs[-1], sequence.logprobs[0]),
                f"after the ids {row} the token {sequence.ids[-1]} has the logprob "
                f"{sequence.logprobs[0]}, and {score.token_logprobs[-1:]} as a score: the ids "
                "were not read as they were given",
            )
    testable(bool(heard), _SILENT)


def _rows(subject: Subject) -> list[list[int]]:
    """Return ids of a text, with each special one that is known twice in front, and at the end."""
    encode = tokenizing(subject).encode
    ids = list(encode(PLAIN[0]))
    special = [ids[0]]
    if subject.declares(Capability.CHAT) and has_template(subject):
        rendered = tokenizing(subject).render_chat(_HELLO)
        plain = set(encode(str.__str__(rendered)))
        special += [id for id in dict.fromkeys(encode(rendered)) if id not in plain]
    return [row for id in special for row in ([id, id, *ids[1:]], [*ids, id], [*ids, id, id])]
