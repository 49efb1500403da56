"""Where files are written: in `core.system.outputs`, and in few places beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("core", "*/src", "plugins/*/src")
OURS = {"output", "outputs", "self", "report", "page"}  # names of modules and writers of ours
OF_MODULES = {
    **dict.fromkeys(("replace", "rename", "remove", "unlink", "rmdir", "truncate"), "os"),
    **dict.fromkeys(("rmtree", "move", "copy", "copyfile", "copytree"), "shutil"),
    **dict.fromkeys(("mkstemp", "NamedTemporaryFile"), "tempfile"),
}
OF_FILES = {
    *("write_text", "write_bytes", "unlink", "rename", "rmdir", "touch", "symlink_to"),
    *("hardlink_to", "save_safetensors", "savez", "ParquetWriter", "GGUFWriter"),
    *("delete_file", "delete_dir", "open_output_stream", "write_parquet", "to_csv", "save_file"),
}
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT"}

# Each of these writes only what the guard, or a check that asks for the same, has let through.
WRITERS = {
    "cli/src/core_cli/commands/prompting.py": "the history of typed lines, in a folder of its own",
    "cli/src/core_cli/jobs/job.py": "the old Parquet file of a job, which its journal knows",
    "cli/src/core_cli/jobs/journal.py": "an empty journal that it created",
    "cli/src/core_cli/jobs/merging.py": "drafts of the guard",
    "cli/src/core_cli/exits.py": "standard streams",
    "cli/src/core_cli/writing/parquet.py": "drafts of the guard",
    "conformance/src/core_conformance/clauses.py": "the list of clauses in the docs",
    "conformance/src/core_conformance/running/child.py": "a temporary folder",
    "conformance/src/core_conformance/running/isolation.py": "a temporary folder",
    "core/system/outputs.py": "the guard",
    "core/system/terminal.py": "standard output",
    "core/testing/__init__.py": "a model for tests, where a test asks for it",
    "plugins/llama_cpp/src/core_llama_cpp/checkpoint/probe.py": "a file in memory, or temporary",
    "plugins/mcp/src/core_mcp/stdio.py": "standard output",
    "plugins/mlx_native/src/core_mlx_native/checkpoint/saving.py": "drafts of the guard",
    "plugins/mlx_native/src/core_mlx_native/convert/lora_gguf.py": "drafts of the guard",
    "plugins/mlx_native/src/core_mlx_native/convert/merging.py": "a new directory of staging",
    "plugins/mlx_native/src/core_mlx_native/convert/staging.py": "directories, by their record",
    "plugins/mlx_native/src/core_mlx_native/convert/weights.py": "a new directory of staging",
    "plugins/openvino/src/core_openvino/stored.py": "drafts of the guard, in its own cache folder",
    "plugins/ray/src/core_ray/folders.py": "a job's folders, by its note and names",
    "plugins/ray/src/core_ray/job.py": "a folder that folders.py has checked",
}


def modules() -> Iterator[Path]:
    """All that is shipped, but for the checks and proofs, which write to places of their own."""
    for pattern in SOURCES:
        for source in ROOT.glob(pattern):
            for file in source.rglob("*.py"):
                inside = re.search(r"core_conformance/(check|proof|reference)", str(file))
                if not inside:
                    yield file


def writes(call: ast.AST) -> bool:
    """Return whether a call may write, remove or replace a file."""
    if not isinstance(call, ast.Call):
        return False
    function = call.func
    name = getattr(function, "attr", None) or getattr(function, "id", "")
    owner = getattr(function, "value", None)
    module = getattr(owner, "id", None)
    if name in ("open", "fdopen"):
        words = [*call.args, *(key.value for key in call.keywords if key.arg == "mode")]
        modes = [word.value for word in words if isinstance(word, ast.Constant)]
        flags = {part.attr for part in ast.walk(call) if isinstance(part, ast.Attribute)}
        written = (re.fullmatch(r"[rwaxbt+]*[wax+][rwaxbt+]*", str(mode)) for mode in modes)
        return any(written) or bool(flags & FLAGS)
    if name not in OF_FILES:
        return name in OF_MODULES and module == OF_MODULES[name]
    return name[0].isupper() or (owner is not None and module not in OURS)


@pytest.mark.whole
def test_files_are_written_through_the_guard() -> None:
    found = {
        file.relative_to(ROOT).as_posix()
        for file in modules()
        if any(map(writes, ast.walk(ast.parse(file.read_bytes()))))
    }
    assert found == WRITERS.keys(), "write with core.system.outputs, or say here why not"
