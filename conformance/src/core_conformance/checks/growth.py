"""Checks of what comes after a backend was written: another version, and options added since.

The next version is imitated: the contract gets one more option for the time of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import core
from core import protocols
from core import registry as registry_module
from core.errors import ProtocolMismatchError, UnsupportedOptionError
from core.extensions import Tokenizing
from core.kit import support
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
)
from core.protocols import PROTOCOL_VERSION, Capability
from core.registry import Registry
from core_conformance.checking.ask import LABELS
from core_conformance.checking.calls import CHAT, PROMPTS, declared, must_raise, raised
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject

_OPTION = "core_option_of_tomorrow"
_KEYWORDS = (GenerateOptions, ChatOptions, ClassifyOptions, RequestOptions)
_CALLS: dict[Capability, tuple[str, tuple[Any, ...]]] = {
    Capability.GENERATE: ("generate", (PROMPTS[0],)),
    Capability.CHAT: ("chat", (CHAT,)),
    Capability.CLASSIFY: ("classify", (PROMPTS[:1],)),
    Capability.LABEL_SENTENCES: ("classify", (PROMPTS[:1],)),
    Capability.BATCH_GENERATE: ("batch_generate", (PROMPTS[:1],)),
    Capability.SUBMITTING: ("submit", (PROMPTS[0],)),
    Capability.BATCH_STREAMING: ("batch_stream", (PROMPTS[:1],)),
    Capability.CLASSIFY_STREAMING: ("classify_iter", (PROMPTS[:1],)),
    Capability.TOKEN_PROMPTS: ("generate_tokens", ([[1, 2]],)),
    Capability.SCORING: ("score", (PROMPTS[:1], ["good"])),
    Capability.HIDDEN_STATES: ("hidden_states", (PROMPTS[:1],)),
    Capability.ATTENTION_INSPECTOR: ("inspect_attention", (PROMPTS[0],)),
}


@check(
    "growth.versions",
    "With this version of the contract the backend MUST be found; with an older and a newer one it "
    "MUST be refused by its name, with both numbers: what it states does not follow core",
    since=2,
)
def other_versions_are_refused(subject: Subject) -> None:
    name = subject.backend.name
    registry = Registry()
    registry.register(subject.backend)
    error = raised(partial(registry.get, name))
    must(error is None, f"with version {PROTOCOL_VERSION} of the contract {name!r} gave {error!r}")
    for version in (PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1):
        with _version(version):
            error = raised(partial(registry.get, name))
        shown = str(error)
        must(
            isinstance(error, ProtocolMismatchError)
            and all(part in shown for part in (name, str(version), str(PROTOCOL_VERSION))),
            f"with version {version} of the contract {name!r} gave {error!r}: expected a "
            f"ProtocolMismatchError with its name, {version} and {PROTOCOL_VERSION}",
        )


@check(
    "growth.options",
    "An option that the contract has gained since the backend was written MUST be refused by its "
    "name at the call, in every operation that takes it: it is never passed over",
    since=2,
)
def new_options_are_refused(subject: Subject) -> None:
    model: Any = subject.model
    labels: Any = {"labels": LABELS} if subject.declares(Capability.LABELS) else {}
    for operation in dict.fromkeys(declared(subject, *_CALLS)):
        method, given = _CALLS[operation]
        own: Any = (
            labels if operation in (Capability.CLASSIFY, Capability.CLASSIFY_STREAMING) else {}
        )
        config = Tomorrow(max_tokens=1, **own, core_option_of_tomorrow=1.0)
        with _tomorrow():
            what = f"{method} with an option that was added to the contract"
            error = must_raise(
                UnsupportedOptionError, partial(getattr(model, method), *given, config), what
            )
        must(_OPTION in str(error), f"{what} raised {error!r}, which does not name {_OPTION}")
        unset = Tomorrow(max_tokens=1, **own)
        with _tomorrow():
            error_unset = raised(partial(getattr(model, method), *given, unset))
        must(
            not isinstance(error_unset, UnsupportedOptionError),
            f"{method} with that option at its default raised {error_unset!r}",
        )


@check(
    "growth.keywords",
    "render_chat MUST raise TypeError for a keyword that it does not know",
    Capability.TOKENIZING,
    Capability.CHAT,
)
def unknown_keywords_of_render_chat(subject: Subject) -> None:
    render: Callable[..., str] = cast("Tokenizing", subject.model).render_chat
    for keyword in ("no_such_option", "max_tokens"):
        call = partial(render, CHAT, **{keyword: 1})
        must_raise(TypeError, call, f"render_chat({keyword}=1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tomorrow(GenerateConfig):
    """The options of a request in a later version of the contract."""

    core_option_of_tomorrow: float = 0.0


@contextmanager
def _version(number: int) -> Iterator[None]:
    """Let core implement another version of the contract."""
    places: tuple[Any, ...] = (protocols, registry_module, core)
    try:
        for place in places:
            place.PROTOCOL_VERSION = number
        yield
    finally:
        for place in places:
            place.PROTOCOL_VERSION = PROTOCOL_VERSION


@contextmanager
def _tomorrow() -> Iterator[None]:
    """Add the option to the keywords of all operations, and to those that may be refused."""
    refusable = support.REFUSABLE
    try:
        support.REFUSABLE = refusable | {_OPTION}
        for keywords in _KEYWORDS:
            keywords.__annotations__[_OPTION] = float
        yield
    finally:
        support.REFUSABLE = refusable
        for keywords in _KEYWORDS:
            keywords.__annotations__.pop(_OPTION, None)
