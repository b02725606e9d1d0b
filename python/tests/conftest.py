"""What the tests of the package share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Callable, Iterator

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


@contextmanager
def forked(act: Callable[[], object] = lambda: None) -> Iterator[int]:
    """A child of this process, which acts and then stays until the end of the block. Yields its process ID when it has acted."""
    acted, tell = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of the test may run on in the child.
        try:
            act()
            os.write(tell, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        with open(acted, "rb") as pipe:
            assert pipe.read(1), "the child has failed"
            yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextmanager
def killed_parent(script: str, *arguments: str) -> Iterator[str]:
    """A process that runs a script, forks a child that sleeps, and dies. The child lives until the end of the block.

    Yields what the script has printed.
    """
    forks = """
import os, signal, sys, time
sys.stdout.flush()
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    time.sleep(600)
    os._exit(0)
print("child", child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-c", script + forks, *arguments]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == -signal.SIGKILL
    printed, _, child = ended.stdout.rpartition("child ")
    try:
        yield printed.strip()
    finally:
        os.kill(int(child), signal.SIGKILL)


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
