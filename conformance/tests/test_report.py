"""The report, the badge, and the list of clauses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from core.protocols import PROTOCOL_VERSION, Capability
from core_conformance import clauses
from core_conformance.running import report
from core_conformance.running.badge import BADGE, badge_of, svg, write_badge
from core_conformance.running.known import UsageError
from core_conformance.running.report import model_name, model_sha256
from core_conformance.running.result import Result, Status
from core_conformance.running.run import Run
from core_conformance.running.settings import Settings


def finished(model: Path, backend: str, **settings: dict[str, str]) -> Run:
    run = Run(Settings(backend, str(model), {"shade": 3}, **settings))  # type: ignore[arg-type]
    run.start()
    for check in run.checks:
        run.run(check)
    run.stop()
    return run


@pytest.mark.usefixtures("toys")
def test_a_report_says_everything(tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"weights")
    run = finished(model, "toy_wrong")
    content = json.loads(report.encoded(report.report_of(run, certify=True, threads_left=("t",))))
    assert content["verdict"] == "not conformant (1 failed)"
    assert content["certified"] is False
    assert content["suite"] == {
        "version": "0.1.0",
        "core_version": "0.1.0",
        "protocol": PROTOCOL_VERSION,
    }
    assert content["backend"] == {
        "name": "toy_wrong",
        "distribution": "toys",
        "version": "0.1",
        "protocol": PROTOCOL_VERSION,
        "capabilities": ["generate"],
        "options": {"shade": 3},
    }
    assert content["model"]["name"] == "tiny.gguf"
    assert content["platform"].keys() == {"system", "machine", "python", "cpus"}
    assert content["threads_left"] == ["t"]
    checks = {check["id"]: check for check in content["checks"]}
    assert list(checks) == ["toy.first", "toy.labels", "toy.second", "toy.third"]
    assert checks["toy.labels"]["refused"] == "classify"
    assert checks["toy.second"]["status"] == "failed"
    assert "nonsense" in checks["toy.second"]["reason"]
    assert all(check["seconds"] >= 0 for check in content["checks"])
    assert {check["since"] for check in content["checks"]} == {1}


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("backend", "settings", "message", "colour"),
    [
        ("toy", {}, "3 checked, 1 refused", "brightgreen"),
        ("toy_wrong", {}, "2 checked, 1 refused, 1 failed", "red"),
        (
            "toy_wrong",
            {"known": {"toy.second": "why, link"}},
            "2 checked, 1 refused, 1 known failure",
            "green",
        ),
        ("toy_small", {}, "0 checked, 1 refused, 3 not testable", "lightgrey"),
        ("toy_nothing", {}, "0 checked, 4 refused", "lightgrey"),
    ],
)
def test_the_badge(
    tmp_path: Path, backend: str, settings: dict[str, dict[str, str]], message: str, colour: str
) -> None:
    badge = badge_of(finished(tmp_path, backend, **settings))
    assert badge == {
        "schemaVersion": 1,
        "label": f"core protocol {PROTOCOL_VERSION}",
        "message": message,
        "color": colour,
    }


@pytest.mark.usefixtures("toys")
def test_the_badge_of_a_run_that_is_not_whole(tmp_path: Path) -> None:
    assert badge_of(Run(Settings("toy", str(tmp_path))))["color"] == "lightgrey"


@pytest.mark.usefixtures("toys")
def test_the_badge_as_an_image(tmp_path: Path) -> None:
    run = finished(tmp_path, "toy_wrong")
    file = tmp_path / "badge.SVG"
    for _ in range(2):  # the second replaces the first
        write_badge(run, str(file))
    image = ElementTree.parse(file).getroot()
    shown = [element.text for element in image.iter("{http://www.w3.org/2000/svg}text")]
    assert shown == [f"core protocol {PROTOCOL_VERSION}", "2 checked, 1 refused, 1 failed"]
    assert image.get("aria-label") == ": ".join(map(str, shown))
    assert "#e05d44" in file.read_text("utf-8")
    write_badge(run, str(tmp_path / "badge.json"))
    assert json.loads((tmp_path / "badge.json").read_bytes()) == badge_of(run)


def test_a_badge_holds_text_and_no_markup() -> None:
    image = svg({"label": "core protocol 2", "message": "<b> & 'c'", "color": "green"})
    assert ElementTree.fromstring(image).get("aria-label") == "core protocol 2: <b> & 'c'"


def test_the_checksum_is_what_sha256sum_says(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "weights").write_bytes(b"2")
    (tmp_path / "config.json").write_bytes(b"1")
    (tmp_path / ".hidden").write_bytes(b"3")
    shell = "sha256sum b/weights config.json | sha256sum"
    output = subprocess.run(shell, shell=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert model_sha256(str(tmp_path)) == output.split()[0]
    one = subprocess.run(["sha256sum", tmp_path / "config.json"], capture_output=True, text=True)
    assert model_sha256(str(tmp_path / "config.json")) == one.stdout.split()[0]


def test_the_checksum_depends_on_names_and_contents(tmp_path: Path) -> None:
    seen = set()
    for number, (name, content) in enumerate([("a", "1"), ("b", "1"), ("a", "2")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_text(content)
        seen.add(model_sha256(str(folder)))
    assert len(seen) == 3
    assert model_sha256(str(tmp_path / "nowhere")) is None


@pytest.mark.usefixtures("toys")
def test_without_classify_its_options_are_not_reported(tmp_path: Path) -> None:
    run = Run(Settings("toy", str(tmp_path)))
    most = frozenset({Capability.GENERATE, Capability.CLASSIFY, Capability.LABELS})
    run.backend = SimpleNamespace(capabilities=most)
    assert run.capabilities == most
    run.results["toy.labels"] = Result("toy.labels", Status.PASSED, refused="classify")
    assert run.capabilities == {Capability.GENERATE}


def test_the_name_people_know() -> None:
    assert model_name("/models/tiny.gguf") == "tiny.gguf"
    cached = "/cache/hub/models--org--tiny-1b/snapshots/0123abcd"
    assert model_name(cached) == "org/tiny-1b"


def test_a_file_that_cannot_be_written_is_named_before_the_run(tmp_path: Path) -> None:
    file, mine = tmp_path / "r.json", tmp_path / "mine.json"
    mine.write_text('{"verdict": "mine"}')
    report.writable((None, BADGE), (str(file), report.REPORT))
    refused = {tmp_path / "no" / "r.json": "cannot be written", tmp_path: "is a folder"}
    for place, message in {**refused, mine: "is not a conformance report written by this"}.items():
        with pytest.raises(UsageError, match=message):
            report.writable((str(place), report.REPORT))
    with pytest.raises(UsageError, match="Two outputs have the same name"):
        report.writable((str(file), report.REPORT), (str(file), BADGE))


def test_the_list_of_clauses_is_current() -> None:
    assert clauses.FILE.read_text(encoding="utf-8") == clauses.text(), (
        "run: python -m core_conformance.clauses --write"
    )


def test_the_list_of_clauses_has_every_check(
    toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clauses.main([]) == 0
    shown = capsys.readouterr().out
    assert "| `toy.labels` | Labels MUST be scored. | classify, labels | 1 |" in shown
    tomorrow = f"The next version's word MUST come back. | - | {PROTOCOL_VERSION + 1} |"
    assert f"| `toy.tomorrow` | {tomorrow}" in shown
    assert shown.count("| `toy.") == 5
    assert clauses.main(["--wriet"]) == 2
