"""Each sentence of the contract names its checks, or the reason why it has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from core_conformance import promises

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT = """\
# A heading

**An option** (see [a page](x.md)) is read. At 2^64 - 1 it ends: "so." It is
`text`, e.g. of llama.cpp. `None` is none.

| a | b |
|---|---|
| one row | x. Y |

- an item
- another. One more.

```
code is. One
```
"""


def test_every_sentence_has_an_entry_and_every_entry_a_sentence() -> None:
    assert promises.problems() == []


def test_most_promises_have_a_check() -> None:
    figures = promises.figures()
    assert figures["with checks"] >= 320
    assert figures["with a reason"] <= 20


def test_sentences_end_where_a_reader_sees_them_end() -> None:
    assert promises.sentences(TEXT) == [
        "**An option** (see [a page](x.md)) is read.",
        'At 2^64 - 1 it ends: "so."',
        "It is `text`, e.g. of llama.cpp.",
        "`None` is none.",
        "| one row | x. Y |",
        "- an item",
        "- another.",
        "One more.",
        "code is. One",
    ]


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ({}, "core.options.ChatOptions: no entry for 'Keywords of ``chat``.'"),
        ({"Keywords": ["a.b"]}, "core.options.ChatOptions: 'a.b' is not a check"),
        ({"Nothing": "core"}, "core.options.ChatOptions: 0 sentences begin with 'Nothing'"),
    ],
)
def test_what_is_wrong_is_reported(
    monkeypatch: pytest.MonkeyPatch, entries: Mapping[str, promises.Entry], line: str
) -> None:
    monkeypatch.setattr(promises, "entries", lambda: {"core.options.ChatOptions": entries})
    assert line in promises.problems()


def test_the_command_prints_sentences_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert promises.main(["core.options.LABEL_SENTENCE"]) == 0
    output = capsys.readouterr().out
    assert "    label_sentences.default\n" in output
    assert "with checks" in output
