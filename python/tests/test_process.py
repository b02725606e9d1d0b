"""Commands that an agent starts, without a link."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Iterator, List

import pytest

from conftest import until
from farwire import CommandFailed, FarwireError
from farwire.wan import Process, _answer, _End


@pytest.fixture
def end(tmp_path: Path) -> Iterator[_End]:
    """An end whose agent runs here."""
    end = _End("near")
    with subprocess.Popen(end.command(str(tmp_path)), pass_fds=[end.inherited]) as agent:
        end.started()
        _answer(end.socket, None)
        yield end
        end.close()
    assert agent.returncode == 0


def run(end: _End, *command: str) -> Process:
    return Process(end, command, None, os.environ, "/")


def test_a_thread_that_waits_holds_up_nobody(end: _End) -> None:
    codes: List[int] = []
    with run(end, "sleep", "600") as process:
        thread = threading.Thread(target=lambda: codes.append(process.wait()))
        thread.start()
        until(process._lock.locked)
        assert process.poll() is None
        with pytest.raises(CommandFailed, match="did not end within 0.05 s"):
            process.wait(0.05)
        process.kill()
        thread.join()
        assert codes == [process.poll()] == [-9]


@pytest.mark.filterwarnings("error")
def test_no_file_remains_open(end: _End) -> None:
    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    with run(end, "sh", "-c", "echo one; echo two >&2; exit 3") as process:
        assert process.wait(60) == 3
    assert (process.stdout, process.stderr) == ("one\n", "two\n")
    with pytest.raises(CommandFailed, match="standard output:\none\nstandard error:\ntwo"):
        process.check()
    with pytest.raises(CommandFailed, match="no-such-program"):
        run(end, "no-such-program")
    assert open_files() == before
    end.close()
    with pytest.raises(FarwireError, match="the near end of the link is gone"):
        run(end, "true")
    assert open_files() == before - 1


def test_the_group_of_a_command_that_has_ended_is_killed(end: _End) -> None:
    # The sleeping process has the pipe until it ends.
    reader, writer = os.pipe()
    with open(reader, "rb") as pipe:
        script = f"sleep 600 > /proc/{os.getpid()}/fd/{writer} & exit 3"
        with run(end, "sh", "-c", script) as process:
            assert process.wait(60) == 3
            os.close(writer)
            # A signal that the group ignores changes nothing.
            process.send_signal(signal.SIGCONT)
            assert process.poll() == 3
        assert pipe.read() == b""


def test_a_code_tells_of_the_signal(end: _End) -> None:
    for command, code in (("exit 0", 0), ("exit 255", 255), ("kill -TERM $$", -signal.SIGTERM)):
        with run(end, "sh", "-c", command) as process:
            assert process.wait(60) == code
