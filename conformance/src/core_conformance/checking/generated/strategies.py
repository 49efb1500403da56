"""Generated inputs: texts of all of Unicode, options of a request, labels, and rows of prompts.

The first of a choice is the simplest: failing inputs shrink to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from core.errors import UnsupportedOptionError
from core.protocols import Capability
from core.sampling_options import FILTERS
from core_conformance.checking import ask
from core_conformance.checking.generated.lazily import st
from core_conformance.checking.subject import Subject

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

WORDS = ("a", " the", " good", "The weather today is", " 1 2 3", "\n", ". ")
SPELLED = (
    "</s>", "<s>", "<|endoftext|>", "<|im_start|>user\n", "<|im_end|>", "<eos>", "<start_of_turn>",
    "[INST]", "<unk>", "<0x00>", "<user>", "<system>",
)  # fmt: skip
_RANGES = (
    (0x61, 0x7A),
    (0x20, 0x7E),
    (0x00, 0x1F),  # NUL and the other controls
    (0x80, 0x24F),
    (0x300, 0x36F),  # combining marks
    (0x370, 0x6FF),
    (0x900, 0x97F),
    (0x1100, 0x11FF),  # parts of Korean syllables
    (0x2000, 0x206F),  # joiners, directions, white space that is none
    (0x20D0, 0x20F0),
    (0x3040, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xE000, 0xF8FF),
    (0xF900, 0xFFFF),
    (0x10000, 0x10FFFF),
    (0x1F300, 0x1FAFF),
)
_MARKED = (
    "\0",
    "a\0b",
    "e\u0301",
    "\u0301",
    "\U0001f389",
    "\U0001d518",
    "\ufeff",
    "\u200d",
    "\ufffd",
)
_SPACE = ("", " ", "\n", "\t", "\u3000", "  ", "\r\n", "\0")


def characters() -> SearchStrategy[str]:
    """Generate any character but a surrogate; `st.characters` would keep tables in a folder."""
    return st.sampled_from(_RANGES).flatmap(lambda ends: st.integers(*ends)).map(chr)


def _pieces() -> SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(_MARKED),
        characters(),
        st.sampled_from(SPELLED),
        st.tuples(characters(), st.integers(2, 40)).map(lambda both: both[0] * both[1]),
    )


def texts(most: int = 6) -> SearchStrategy[str]:
    """Return a text of at least one character, white space at its ends now and then."""
    middle = st.lists(_pieces(), min_size=1, max_size=most).map("".join)
    ends = st.sampled_from(_SPACE)
    odd = st.tuples(ends, middle, ends).map("".join)
    return st.one_of(st.sampled_from(ask.PLAIN), middle, odd)


def rows(most: int = 9) -> SearchStrategy[list[str]]:
    """Generate the prompts of one call; some are duplicates, and one may be empty."""
    return st.composite(_rows)(most)


def _rows(draw: st.DrawFn, most: int) -> list[str]:
    several = draw(st.lists(st.one_of(texts(), texts(), st.just("")), min_size=1, max_size=4))
    return draw(st.lists(st.sampled_from(several), min_size=1, max_size=most))


def labels() -> SearchStrategy[tuple[str, ...]]:
    """Generate one to five labels; some are prefixes of others."""
    return st.composite(_labels)()


def _labels(draw: st.DrawFn) -> tuple[str, ...]:
    short = st.lists(_pieces(), min_size=1, max_size=2).map(lambda parts: "".join(parts)[:8])
    labels = draw(st.lists(st.one_of(st.sampled_from(ask.LABELS), short), min_size=1, max_size=3))
    longer = draw(st.lists(st.tuples(st.sampled_from(labels), short).map("".join), max_size=2))
    return tuple(dict.fromkeys([*labels, *longer]))


def prefixes() -> SearchStrategy[str]:
    """Return a ``label_prefix``."""
    return st.sampled_from((" ", "", ": ", "\n", " \u0301"))


def sampling(subject: Subject, plain: bool = True) -> SearchStrategy[dict[str, Any]]:
    """Generate options with a reproducible answer: greedy or seeded; with ``plain``, or none."""
    honoured = {name: value for name, value in _options().items() if _honours(subject, name)}
    greedy = st.fixed_dictionaries({}, optional=_among(honoured, ("repeat_penalty",)))
    if not subject.declares(Capability.SEED) or "temperature" not in honoured:
        return greedy
    names = ("repeat_penalty", *(option.name for option in FILTERS))
    drawn = st.fixed_dictionaries(
        {"temperature": st.sampled_from((1.0, 0.5, 20.0)), "seed": _seeds()},
        optional=_among(honoured, names),
    )
    return st.one_of(st.just({}), greedy, drawn) if plain else drawn


def _options() -> dict[str, SearchStrategy[Any]]:
    return {
        "temperature": st.just(1.0),
        "repeat_penalty": st.sampled_from((1.5, 0.5)),
        "top_k": st.sampled_from((3, 1, 40)),
        "top_p": st.sampled_from((0.5, 0.9)),
        "min_p": st.sampled_from((0.1, 0.02)),
        "typical_p": st.sampled_from((0.5, 0.9)),
    }


def _seeds() -> SearchStrategy[int]:
    return st.one_of(st.integers(0, 3), st.sampled_from((2**31, 2**32 + 1, 2**64 - 1)))


def _among(
    honoured: Mapping[str, SearchStrategy[Any]], names: Sequence[str]
) -> dict[str, SearchStrategy[Any]]:
    return {name: honoured[name] for name in names if name in honoured}


def _honours(subject: Subject, option: str) -> bool:
    """Return whether the backend takes an option that it may refuse; asked with a small call."""
    model, value = subject.model, {"temperature": 0.5, "top_k": 2}.get(option, 0.5)
    options = cast("dict[str, Any]", {option: value})
    try:
        if subject.declares(Capability.GENERATE):
            model.generate(ask.SHORT, max_tokens=1, **options).close()
        elif subject.declares(Capability.CLASSIFY):
            model.classify([ask.SHORT], **options)
        elif subject.declares(Capability.BATCH_GENERATE):
            model.batch_generate([ask.SHORT], max_tokens=1, **options)
        else:
            return False
    except UnsupportedOptionError:
        return False
    return True
