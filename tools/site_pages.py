"""Collect the pages of the documentation site in build/docs, for `make docs`.

README.md becomes the first page; the files of docs/ keep their names; other files of the repository
that a page links come along under their path. Links are rewritten to match.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "docs"
_LINK = re.compile(r"(?<=\]\()([^)\s:#]+)(?=[)#])")


def main() -> None:
    """The command."""
    shutil.rmtree(BUILD, ignore_errors=True)
    for path, name in collected().items():
        target = BUILD / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(with_site_links(path), encoding="utf-8")
        else:
            shutil.copy(path, target)


def collected() -> dict[Path, str]:
    """Return the files of the site, with their names there."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").iterdir())]
    pages += [ROOT / name for name in in_navigation() if (ROOT / name).exists()]
    names: dict[Path, str] = {}
    while pages:
        page = pages.pop()
        if page not in names:
            names[page] = site_name(page)
            pages += linked(page)
    return names


def in_navigation() -> list[str]:
    """Return the pages that zensical.toml names, in order."""
    with open(ROOT / "zensical.toml", "rb") as file:
        return list(_pages(tomllib.load(file)["project"]["nav"]))


def _pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry if isinstance(entry, list) else entry.values():
            yield from _pages(part)


def site_name(path: Path) -> str:
    """Return the name of a file of the repository in the site."""
    if path == ROOT / "README.md":
        return "index.md"
    folder = ROOT / "docs"
    return path.relative_to(folder if path.is_relative_to(folder) else ROOT).as_posix()


def linked(page: Path) -> list[Path]:
    """Return the files of the repository that a page links."""
    if page.suffix != ".md":
        return []
    places = (_place(page, link) for link in _LINK.findall(page.read_text(encoding="utf-8")))
    return [place for place in places if place is not None]


def with_site_links(page: Path) -> str:
    """Return the text of a page, its links relative to its place in the site."""
    folder = os.path.dirname(site_name(page))

    def renamed(match: re.Match[str]) -> str:
        place = _place(page, match[0])
        return os.path.relpath(site_name(place), folder or ".") if place else match[0]

    return _LINK.sub(renamed, page.read_text(encoding="utf-8"))


def _place(page: Path, link: str) -> Path | None:
    place = (page.parent / link).resolve()
    return place if place.is_file() else None


if __name__ == "__main__":
    main()
