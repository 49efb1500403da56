"""submit: requests beside one another, each as if it were alone."""

from __future__ import annotations

from core.capability import Capability
from core.options import GenerateConfig
from core.protocols import TokenStream
from core_conformance import prompts
from core_conformance.answers import evidence, generate, read, submitting
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.relations import same_speech
from core_conformance.speaking import speaks
from core_conformance.subject import Subject


@check(
    "submitting.equals-generate",
    "Requests submitted together MUST each get what generate gives, in whatever order read",
    Capability.SUBMITTING,
    Capability.GENERATE,
)
def submitted_equals_generate(subject: Subject) -> None:
    asked = prompts.PLAIN[:4]
    alone = [generate(subject, prompt, 5) for prompt in asked]
    streams = [_submit(subject, prompt, 5) for prompt in asked]
    answers = [read(stream) for stream in reversed(streams)]
    pairs = list(zip(alone, reversed(answers), strict=True))
    same_speech(subject, pairs, "generate alone and one of four submitted requests")


@check(
    "submitting.close",
    "Closing one submitted request MUST leave the others running",
    Capability.SUBMITTING,
)
def closing_one_leaves_the_others(subject: Subject) -> None:
    alone = read(_submit(subject, prompts.PLAIN[0], 5), prompts.PLAIN[0])
    closed, kept = (_submit(subject, prompt, 5) for prompt in (prompts.LONG, prompts.PLAIN[0]))
    closed.close()
    extra = next(closed, None)
    must(extra is None, f"a closed request still gave {extra!r}")
    same_speech(subject, [(alone, read(kept))], "alone and beside a request that was closed")


def _submit(subject: Subject, prompt: str, max_tokens: int) -> TokenStream:
    speaks(subject, Capability.SUBMITTING)
    config = GenerateConfig(max_tokens=max_tokens, **evidence(subject))
    return submitting(subject).submit(prompt, config)
