"""The documentation site: its navigation, links, generated pages and pictures."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tools import commands, pictures, site_pages
from tools.house import HOUSES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"(?<!`)\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}"


def test_every_page_is_in_the_navigation() -> None:
    named = site_pages.in_navigation()
    assert len(named) == len(set(named))
    assert {site_pages.site_name(page) for page in PAGES} <= set(named)
    there = {path for path in map(str, site_pages.collected().values()) if path.endswith(".md")}
    assert set(named) <= there


def test_links_follow_the_pages_into_the_site(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(site_pages, "BUILD", tmp_path)
    site_pages.main()
    assert "(choosing.md#backend)" in (tmp_path / "index.md").read_text()
    assert "(examples/markov_backend.py)" in (tmp_path / "write_a_backend.md").read_text()
    assert (tmp_path / "examples" / "markov_backend.py").exists()


@pytest.mark.skipif(not importlib.util.find_spec("zensical"), reason="make docs installs zensical")
def test_the_site_builds() -> None:
    subprocess.run([sys.executable, "-m", "tools.site_pages"], cwd=ROOT, check=True)
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    subprocess.run(build, cwd=ROOT, check=True)


@pytest.mark.whole
def test_the_commands_are_those_of_infer_cli() -> None:
    assert commands.PAGE.read_text("utf-8") == commands.page(), (
        "run: python tools/commands.py --write"
    )


@pytest.mark.whole
def test_the_packages_are_those_of_the_code() -> None:
    drawn = pictures.packages()
    assert pictures.PACKAGES.read_text("utf-8") == drawn, "run: python -m tools.pictures --write"
    assert set(re.findall(r">(core\w*)<", drawn)) == set(HOUSES)


def test_the_terminal_shows_what_the_commands_print(smollm2_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "news.txt").write_text(pictures.SENTENCES)
    recorded = pictures.TERMINAL.read_text("utf-8").replace("&#160;", " ")
    for command in pictures.COMMANDS[1:]:  # other models may be there than in the picture
        output = pictures.output(shlex.split(command), str(tmp_path))
        assert set(re.findall(r"[a-zA-Z]{3,}", output)) <= set(re.findall(r"\w+", recorded))
