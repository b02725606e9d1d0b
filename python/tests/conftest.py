"""What the tests of the package share."""

from __future__ import annotations

import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Callable

import pytest

pytest_plugins = ["pytester"]

#: A program that opens a port and answers every connection with what it got.
ECHO = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(connection.recv(100))
"""


def until(is_so: Callable[[], bool]) -> None:
    """Waits until something is so, for as long as the suite may run."""
    while not is_so():
        time.sleep(0.02)


def is_installed() -> bool:
    """Says whether the package is installed, and not only in the path of a checkout."""
    try:
        return bool(metadata.version("farwire"))
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture
def echo(tmp_path: Path) -> list[str]:
    """The command of a server that answers what it gets, without its port."""
    path = tmp_path / "echo.py"
    path.write_text(ECHO)
    return [sys.executable, str(path)]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory for a test suite that runs in a separate process, with the plugin as it is here."""
    here = str(Path(__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", here)
    # An installed package adds its plugin by itself.
    plugin = "" if is_installed() else "-p farwire.pytest_plugin "
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{plugin}-p no:cacheprovider")
    monkeypatch.delenv("FARWIRE_REQUIRED", raising=False)
    return pytester
