"""Draw the pictures of the documentation: ``python -m tools.pictures --write``.

docs/packages.svg shows the distributions and what each imports, read from the code; a test compares
it. docs/terminal.svg records commands of infer-cli with the demo's model (``make models``), and
docs/page.png is the page of its server in chromium.
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp
from rich.console import Console
from rich.text import Text

from tools.house import HOUSES

DOCS = Path(__file__).resolve().parents[1] / "docs"
PACKAGES, TERMINAL, PAGE = DOCS / "packages.svg", DOCS / "terminal.svg", DOCS / "page.png"

ROWS = (
    ("programs", "cli server conformance"),
    ("other libraries", "frames sklearn learn langchain llm mcp lm_eval ray daft"),
    ("backends", "mlx_native llama_cpp openvino mlx_lm_bridge remote"),
    ("shared", "tasks wires runtime"),
    ("contract", ""),
)
_BOX, _GAP, _LEFT, _PER_LINE = (165, 46), 10, 110, 5
_STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #222 } .small { font-size: 11px; fill: #555 }
rect { fill: #fff; stroke: #888; rx: 5px } .ground { fill: #fff; stroke: none }"""

SENTENCES = "The striker scored twice.\nThe central bank raised interest rates.\nA comet is near.\n"
COMMANDS = (
    "infer-cli discover -q",
    "infer-cli classify -m smollm2-135m-instruct --labels finance,sports,science "
    "--template '{text} This news is about' -i news.txt",
    "infer-cli chat -m smollm2-135m-instruct 'What is the capital of France?'",
)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files into docs/")
    if not parser.parse_args().write:
        print(packages(), end="")
        return
    PACKAGES.write_text(packages(), encoding="utf-8")
    TERMINAL.write_text(terminal(), encoding="utf-8")
    PAGE.write_bytes(page())


def packages() -> str:
    """Return the SVG of the distributions: a row for each kind, from the top down."""
    boxes, y = [], _GAP
    for title, names in ROWS:
        boxes.append(f'<text class="small" x="{_GAP}" y="{y + 28}">{title}</text>')
        row = [f"core_{name}" for name in names.split()] or ["core"]
        for start in range(0, len(row), _PER_LINE):
            for column, package in enumerate(row[start : start + _PER_LINE]):
                boxes += _box(package, _LEFT + column * (_BOX[0] + _GAP), y)
            y += _BOX[1] + _GAP
        y += _GAP
    width = _LEFT + _PER_LINE * (_BOX[0] + _GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" role="img">'
    title = "<title>The distributions, and the packages that each imports</title>"
    ground = f'<rect class="ground" width="{width}" height="{y}"/>'
    return "\n".join([head, title, f"<style>{_STYLE}</style>", ground, *boxes, "</svg>", ""])


def _box(package: str, x: int, y: int) -> Iterator[str]:
    imported = sorted(name.removeprefix("core_") for name in _imported(package))
    below = ", ".join(imported) if imported else "the standard library"
    yield f'<rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}"/>'
    yield f'<text x="{x + 10}" y="{y + 20}">{package}</text>'
    yield f'<text class="small" x="{x + 10}" y="{y + 37}">{below}</text>'


def _imported(package: str) -> set[str]:
    """Return the other packages of the project that this one imports."""
    graph = _graph()
    modules = {package, *graph.find_descendants(package)} - {"core.__main__"}  # runs infer-cli
    imports = (graph.find_modules_directly_imported_by(module) for module in modules)
    return {name.partition(".")[0] for names in imports for name in names} - {package}


@functools.cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(*HOUSES, exclude_type_checking_imports=True, cache_dir=None)


def terminal() -> str:
    """Return the SVG of a terminal in which the commands were run."""
    console = Console(record=True, width=100, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "news.txt").write_text(SENTENCES, encoding="utf-8")
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text(output(shlex.split(command), folder)))
    drawn = console.export_svg(title="infer-cli", unique_id="terminal")
    # Without fonts from a server, and without links: it is an image.
    return re.sub(r" *@font-face \{.*?\}\n", "", drawn, flags=re.DOTALL)


def output(command: Sequence[str], folder: str) -> str:
    """Return what a command of infer-cli shows on a terminal of 100 columns."""
    import pty

    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    run = [sys.executable, "-m", "core", *command[1:]]
    with subprocess.Popen(
        run, cwd=folder, env=settings, stdout=theirs, stderr=subprocess.DEVNULL, stdin=theirs
    ):
        os.close(theirs)
        shown = b"".join(_read(ours))
    os.close(ours)
    return shown.decode().replace("\r\n", "\n").rstrip("\n") + "\n"


def _read(terminal: int) -> Iterator[bytes]:
    try:
        while chunk := os.read(terminal, 65536):
            yield chunk
    except OSError:  # on Linux, the end of a terminal
        return


def page() -> bytes:
    """Return a PNG of the server's page, with the example that it shows at first."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    options = ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,740"):
        options.add_argument(flag)
    serve = [sys.executable, "-m", "core", "serve", "smollm2-135m-instruct", "--port", "0"]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        address = next(match[0] for line in lines if (match := re.search(r"http://[\w.:]+", line)))
        with Chrome(options, Service(shutil.which("chromedriver"))) as browser:
            browser.get(address)
            bars = (By.CSS_SELECTOR, "#bars li")
            WebDriverWait(browser, 60).until(lambda shown: shown.find_elements(*bars))
            image = browser.get_screenshot_as_png()
        server.terminate()
    return image


if __name__ == "__main__":
    main()
