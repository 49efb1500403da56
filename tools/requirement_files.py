"""Write DIST/EXTRA.txt for each extra of core: requirements that are the addresses of wheels.

``make dist`` runs this. pip looks up a name on the package index as well as in the given folders,
and a higher version there, or a build number, wins over the wheel here. A requirement that is a
file's address is not looked up.

    python tools/requirement_files.py dist && pip install -r dist/mlx.txt
"""

from __future__ import annotations

import argparse
import email.message
import email.parser
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

Wheels = Mapping[str, tuple[Path, email.message.Message]]


class UnusableFolderError(Exception):
    """The folder does not hold each distribution once, or does not hold core."""


def write(folder: Path) -> list[Path]:
    """Write the file of each extra, and return the paths. Raises `UnusableFolderError`."""
    wheels = _wheels(folder.resolve())
    if "core" not in wheels:
        raise UnusableFolderError(f"{folder} holds no wheel of core: run make dist.")
    files = []
    for extra in wheels["core"][1].get_all("Provides-Extra", []):
        files.append(folder / f"{extra}.txt")
        files[-1].write_text("".join(f"{line}\n" for line in _lines(wheels, extra)))
    return files


def _wheels(folder: Path) -> Wheels:
    """The wheels of a folder and their METADATA, by the names of the distributions."""
    wheels: dict[str, tuple[Path, email.message.Message]] = {}
    for path in sorted(folder.glob("*.whl")):
        name = parse_wheel_filename(path.name)[0]
        if name in wheels:
            both = f"{wheels[name][0].name} and {path.name}"
            raise UnusableFolderError(f"{folder} holds {both}: remove one, or run make dist.")
        wheels[name] = path, _metadata(path)
    return wheels


def _metadata(wheel: Path) -> email.message.Message:
    info = "-".join(wheel.name.split("-")[:2])
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{info}.dist-info/METADATA").decode()
    return email.parser.Parser().parsestr(text)


def _lines(wheels: Wheels, extra: str) -> Iterator[str]:
    """The requirements of an extra of core that are in the folder, each by its file's address."""
    for name, extras in sorted(_needed(wheels, extra).items()):
        brackets = f"[{','.join(sorted(extras))}]" if extras else ""
        yield f"{name}{brackets} @ {wheels[name][0].as_uri()}"


def _needed(wheels: Wheels, extra: str) -> dict[str, set[str]]:
    """The distributions of the folder that ``core[extra]`` brings, with the extras of each."""
    needed: dict[str, set[str]] = {}
    left = [("core", ""), ("core", extra)]  # "" is the distribution without an extra
    while left:
        name, extra = left.pop()
        if extra in needed.setdefault(name, set()):
            continue
        needed[name].add(extra)
        for text in wheels[name][1].get_all("Requires-Dist", []):
            requirement = Requirement(text)
            member = canonicalize_name(requirement.name)
            if member in wheels and (
                requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            ):
                left += [(member, wanted) for wanted in ("", *requirement.extras)]
    return {name: extras - {""} for name, extras in needed.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; 1 and the reason on stderr where the folder is unusable."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder with the wheels")
    try:
        write(parser.parse_args(arguments).folder)
    except UnusableFolderError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
