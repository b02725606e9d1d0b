"""The place of the program, and the versions of Python that can read the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import farwire
from farwire import FarwireError, find_farwire_bin

#: The oldest version of Python that pyproject.toml names.
OLDEST = (3, 9)


def test_a_named_program_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "farwire"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("FARWIRE_BIN", str(program))
    assert find_farwire_bin() == str(program)
    monkeypatch.setenv("FARWIRE_BIN", str(tmp_path / "other"))
    with pytest.raises(FarwireError, match="there is no such program"):
        find_farwire_bin()
    monkeypatch.delenv("FARWIRE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_farwire_bin().endswith("/farwire")


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_are_refused_by_a_sentence(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(FarwireError, match="runs on Linux only"):
        find_farwire_bin()


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_cannot_build_the_package(system: str) -> None:
    backend = Path(__file__).parent.parent / "build_backend"
    code = f"import sys; sys.platform = {system!r}; sys.path.insert(0, {str(backend)!r}); import farwire_build"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "farwire runs on Linux only" in ended.stderr


def test_the_module_is_the_program() -> None:
    ended = subprocess.run([sys.executable, "-m", "farwire", "--version"], capture_output=True, text=True)
    assert ended.stdout.startswith("farwire "), ended.stderr


def test_the_oldest_python_reads_every_file() -> None:
    here = Path(__file__).parent
    folders = [Path(farwire.__file__).parent, here, here.parent / "build_backend"]
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    assert len(files) > 10
    for file in files:
        ast.parse(file.read_text(), str(file), feature_version=OLDEST)
