"""The fixture in suites of other people: reports, artifacts, skips, crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from conftest import until

#: A program that lacks user namespaces.
POWERLESS = """#!/bin/sh
if [ "$1" = doctor ]; then exit 3; fi
echo "farwire: error: this machine refuses user namespaces" >&2
exit 125
"""


@pytest.fixture
def powerless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "farwire"
    program.write_text(POWERLESS)
    program.chmod(0o755)
    monkeypatch.setenv("FARWIRE_BIN", str(program))


def test_a_test_that_forgets_its_fault_fails_and_leaves_artifacts(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        def test_forgets(wan):
            with wan.impaired(loss="10%"):
                pass
            wan.exec(["ping", "-q", "-c", "2", "-i", "0.2", wan.server])
            wan.assert_met(dropped=True)
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*FaultNotMet: the traffic did not meet revision 3 (loss 10%*",
            "*0 packets were dropped; expected at least 1",
            "*- farwire -*",
            "link link (seed *)",
            "*revision 3: loss 10%*",
            "up: * packets arrived, * delivered, 0 dropped*",
            "more is in */farwire-artifacts/*test_forgets",
        ]
    )
    (folder,) = (suite.path / "farwire-artifacts").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "counters.json",
        "counters-since-last-change.json",
        "history.json",
        "farwire.log",
        "summary.json",
    }
    assert json.loads((folder / "counters.json").read_text())["up"]["packets"] > 0
    assert "farwire: link" in (folder / "farwire.log").read_text()


def test_a_link_that_only_a_fixture_uses_leaves_artifacts_too(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture
        def server(wan):
            return wan.serve()

        @pytest.fixture
        def broken(wan):
            wan.set(delay="20")

        def test_fails(server):
            assert server.poll() == 0

        def test_never_runs(server, broken):
            pass
        """
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*- farwire -*", "link link (seed *)"])
    kept = {path.name.rpartition("-")[2] for path in (suite.path / "farwire-artifacts").iterdir()}
    assert kept == {"test_fails", "test_never_runs"}


def test_an_api_error_is_the_message(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_wrong(wan): wan.set(delay='20')")
    result = suite.runpytest_subprocess("--farwire-artifacts", "kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ApiError: PATCH /v1/links/link at unix:*: 422: *delay*"])
    assert (suite.path / "kept").is_dir()


def test_a_folder_for_artifacts_that_cannot_be_made_is_no_second_error(suite: pytest.Pytester) -> None:
    (suite.path / "kept").write_text("this is a file")
    suite.makepyfile("def test_wrong(wan): wan.set(delay='20')")
    result = suite.runpytest_subprocess("--farwire-artifacts", "kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the counters of link link cannot be kept: *kept*", "*the log of the link cannot be kept: *kept*"]
    )
    result.stdout.no_fnmatch_line("more is in *")


def test_a_thread_of_an_earlier_test_starts_no_link(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import threading
        import farwire

        ended, said = threading.Event(), []

        def use_later(wan):
            ended.wait()
            try:
                wan.exec(["true"])
            except farwire.FarwireError as error:
                said.append(str(error))

        def test_leaves_a_thread(wan):
            global thread
            thread = threading.Thread(target=use_later, args=[wan])
            thread.start()

        def test_is_later():
            ended.set()
            thread.join()
            assert "has ended with its test" in said[0]
        """
    )
    suite.runpytest_subprocess().assert_outcomes(passed=2)


def test_tests_that_pass_leave_nothing(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_good(wan): wan.exec(['true'])")
    suite.runpytest_subprocess().assert_outcomes(passed=1)
    assert not (suite.path / "farwire-artifacts").exists()


def test_a_suite_for_which_open_files_are_errors_passes(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import gc

        def test_commands(wan):
            assert wan.exec(["echo", "one"]).stdout == "one\\n"
            started = wan.start(["echo", "two"])
            assert started.wait(60) == 0
            wan.stop()
            assert started.stdout == "two\\n"
            del started
            gc.collect()
        """
    )
    warnings = ("-W", "error::ResourceWarning", "-W", "error::pytest.PytestUnraisableExceptionWarning")
    suite.runpytest_subprocess(*warnings).assert_outcomes(passed=1)


@pytest.mark.usefixtures("powerless")
def test_a_machine_without_namespaces_skips_with_the_reason(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_link(wan): wan.exec(['true'])", test_other="def test_unused(wan): pass")
    result = suite.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1, passed=1)
    result.stdout.fnmatch_lines(["SKIPPED*this machine refuses user namespaces*"])


@pytest.mark.usefixtures("powerless")
def test_a_fixture_that_uses_the_link_skips_its_test(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.fixture
        def server(wan):
            return wan.serve()

        def test_link(server):
            pass
        """
    )
    result = suite.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*this machine refuses user namespaces*"])


@pytest.mark.usefixtures("powerless")
def test_a_machine_without_namespaces_fails_where_they_are_required(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARWIRE_REQUIRED", "1")
    suite.makepyfile("def test_link(wan): wan.exec(['true'])")
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*MachineLacks: *this machine refuses user namespaces*"])


def test_a_suite_that_is_killed_leaves_nothing_impaired(suite: pytest.Pytester) -> None:
    # The pipe ends when the last process that has it ends: farwire, its commands, and pytest.
    suite.makepyfile(
        """
        import os, subprocess, sys, time

        def test_hangs(wan):
            wan.set(loss="100%")
            wan.start(["sleep", "600"])
            wan.serve()
            print("running", wan.held.link.client.at, flush=True)
            time.sleep(600)
        """
    )
    command = [sys.executable, "-m", "pytest", "-s", "-q"]
    with subprocess.Popen(command, cwd=suite.path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        at = next(line for line in process.stdout if "running" in line).split()[1]
        assert _of_session(at) != []
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: not _of_session(at))
    assert not os.path.exists(os.path.dirname(at[len("unix:") :]))


def _of_session(at: str) -> List[str]:
    """Returns the processes whose command has the folder of the link."""
    folder = os.path.dirname(at[len("unix:") :]).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if folder in command:
                found.append(entry.name)
    return found


def test_two_sessions_at_the_same_time_have_links_of_their_own(suite: pytest.Pytester) -> None:
    # Each session waits with its link until that of the other one is up.
    suite.makepyfile(
        """
        import os, pathlib, time

        def test_link(wan):
            own, other = os.environ["SESSIONS"].split()
            wan.set(delay=own)
            pathlib.Path(own).touch()
            end = time.monotonic() + 60
            while not pathlib.Path(other).exists():
                assert time.monotonic() < end, "the other session has no link"
                time.sleep(0.02)
            wan.exec(["ping", "-q", "-c", "2", "-i", "0.2", wan.server])
            wan.assert_met(dropped=False)
            assert wan.held.link.state().conditions == {"delay": own}
        """
    )

    def session(names: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pytest", "-q"]
        environment = {**os.environ, "SESSIONS": names}
        return subprocess.Popen(command, cwd=suite.path, env=environment, stdout=subprocess.PIPE, text=True)

    with session("5ms 7ms") as one, session("7ms 5ms") as other:
        said = [process.communicate()[0] for process in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], "\n".join(said)


def test_workers_of_xdist_have_links_of_their_own(suite: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_link(wan, number):
            wan.set(delay=f"{number + 1}ms")
            wan.exec(["ping", "-q", "-c", "2", "-i", "0.2", wan.server])
            wan.assert_met(dropped=False)
            assert wan.held.link.state().conditions == {"delay": f"{number + 1}ms"}
        """
    )
    suite.runpytest_subprocess("-n", "4").assert_outcomes(passed=8)


def test_async_tests_use_the_fixture(suite: pytest.Pytester) -> None:
    pytest.importorskip("pytest_asyncio")
    suite.makepyfile(
        """
        import asyncio, pytest

        @pytest.mark.asyncio
        async def test_ping(wan):
            with wan.impaired(delay="10ms"):
                await asyncio.to_thread(wan.exec, ["ping", "-q", "-c", "1", wan.server])
            wan.assert_met()
        """
    )
    suite.runpytest_subprocess("-p", "no:warnings").assert_outcomes(passed=1)
