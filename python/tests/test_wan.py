"""Commands, servers and sockets behind a link, and conditions that change."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import List

import pytest

from conftest import forked, killed_parent, until
from farwire import ApiError, CommandFailed, FarwireError, FaultNotMet, MachineLacks, Wan, find_farwire_bin

#: Older pings let an ordinary user send no more than five packets a second.
PING = ["ping", "-q", "-c", "3", "-i", "0.2", "-W", "1"]


def test_a_command_meets_the_conditions(wan: Wan) -> None:
    wan.set(delay="20ms")
    ended = wan.exec(["ping", "-c", "1", wan.server])
    milliseconds = float(ended.stdout.split("time=")[1].split()[0])
    assert milliseconds >= 40
    wan.assert_met(dropped=False)
    assert wan.counters().up.mean_delay_ms is not None


def test_a_fault_lasts_as_long_as_its_block(wan: Wan) -> None:
    wan.set(delay="1ms")
    with wan.impaired(loss="100%", up={"delay": "2ms"}) as fault:
        assert wan.exec([*PING, wan.server], check=False).returncode == 1
    wan.exec([*PING, wan.server])
    fault.assert_met(dropped=3, direction="up")
    wan.assert_met(dropped=True)
    with pytest.raises(FaultNotMet, match="expected at least 100"):
        fault.assert_met(dropped=100)
    assert wan.held.link.state().conditions == {"delay": "1ms"}


def test_a_fault_that_met_nothing_is_named(wan: Wan) -> None:
    with wan.impaired(loss="30%"):
        pass
    with pytest.raises(FaultNotMet) as caught:
        wan.assert_met(dropped=True)
    assert "0 packets were dropped; expected at least 1" in str(caught.value)
    assert "loss 30%" in str(caught.value)


def test_servers_run_at_the_far_end(wan: Wan, echo: List[str]) -> None:
    server = wan.serve([*echo, "4000"], port=4000)
    client = "import socket, sys; s = socket.create_connection((sys.argv[1], 4000)); s.sendall(b'hello'); print(s.recv(9))"
    assert wan.exec([sys.executable, "-c", client, wan.server]).stdout == "b'hello'\n"
    server.terminate()
    assert server.wait(10) == -15


def test_the_far_end_of_farwire_answers(wan: Wan) -> None:
    wan.serve()
    measured = wan.exec(["farwire", "measure", "http", wan.server, "--help"], check=False)
    assert measured.returncode == 0, measured.stderr
    with wan.socket() as client:
        client.settimeout(10)
        client.connect((wan.server, 80))
        client.sendall(b"GET /bytes/10 HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.")


def test_sockets_of_this_process_are_behind_the_link(wan: Wan) -> None:
    with wan.socket(far=True) as server, wan.socket() as client:
        server.bind(("", 4000))
        server.listen()
        client.settimeout(10)
        client.connect((wan.server, 4000))
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"hello")
            assert client.recv(9) == b"hello"
    wan.assert_met()


def test_an_event_loop_uses_the_sockets(wan: Wan) -> None:
    async def exchange() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(5))
            writer.close()

        listener = wan.socket(far=True)
        listener.bind(("", 4000))
        server = await asyncio.start_server(answer, sock=listener)
        client = wan.socket()
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, (wan.server, 4000))
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(b"hello")
        got = await reader.readexactly(5)
        writer.close()
        server.close()
        return got

    wan.set(delay="5ms")
    assert asyncio.run(exchange()) == b"hello"
    wan.assert_met(direction="down")


def test_several_threads_use_one_link(wan: Wan) -> None:
    codes: List[int] = []

    def ping() -> None:
        codes.append(wan.exec([*PING, wan.server]).returncode)

    threads = [threading.Thread(target=ping) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0, 0, 0, 0]


def test_a_thread_that_outlives_the_link_starts_no_other_one() -> None:
    with Wan() as wan:
        wan.exec(["true"])
        wan.stop()
        wan.exec(["true"])
    for use in (lambda: wan.exec(["true"]), lambda: wan.held, wan.socket, lambda: wan.attach("127.0.0.1:1")):
        with pytest.raises(FarwireError, match="has ended with its test"):
            use()
    assert wan.links == []


def test_a_command_that_fails_shows_its_output(wan: Wan) -> None:
    with pytest.raises(CommandFailed) as caught:
        wan.exec(["sh", "-c", "echo one; echo two >&2; exit 3"])
    for words in ("ended with 3", "standard output:\none", "standard error:\ntwo"):
        assert words in str(caught.value)
    with pytest.raises(CommandFailed, match="cannot be started: no-such-program: No such file"):
        wan.exec(["no-such-program"])
    with pytest.raises(CommandFailed, match="did not end within 0.1 s"):
        wan.exec(["sleep", "60"], timeout=0.1)
    with pytest.raises(CommandFailed, match="ended with 0 before it listened on port 9"):
        wan.serve(["true"], port=9)


def test_input_environment_and_folder_are_those_of_the_call(wan: Wan, tmp_path: Path) -> None:
    script = 'cat; echo "$GREETING $FARWIRE_SERVER"; pwd'
    ended = wan.exec(["sh", "-c", script], input="hello\n", env={"GREETING": "good day"}, cwd=tmp_path)
    assert ended.stdout == f"hello\ngood day {wan.server}\n{tmp_path}\n"


def test_a_started_command_runs_until_it_is_ended(wan: Wan) -> None:
    with wan.start(["sh", "-c", "echo begun; exec sleep 60"]) as process:
        until(lambda: "begun" in process.stdout)
        assert process.poll() is None
        process.kill()
        assert process.wait(10) == -9
    with pytest.raises(CommandFailed, match="was ended by SIGKILL"):
        process.check()


def test_the_api_says_what_is_wrong(wan: Wan) -> None:
    with pytest.raises(ApiError) as caught:
        wan.set(loss="150%")
    assert caught.value.status == 422
    assert caught.value.field == "loss"
    assert "PATCH /v1/links/link" in str(caught.value)
    with pytest.raises(ApiError, match="los"):
        wan.set(los="1%")


@pytest.mark.wan("--seed", "7", "--mtu", "1400")
def test_the_marker_has_options_of_exec(wan: Wan) -> None:
    assert wan.held.link.state().seed == 7
    with pytest.raises(CommandFailed):
        wan.exec(["ping", "-c", "1", "-M", "do", "-s", "1450", "-W", "1", wan.server])


def test_a_wrong_option_is_said() -> None:
    with Wan("--delay", "20") as wan:
        with pytest.raises(FarwireError, match="farwire exec ended with 125"):
            wan.set(loss="1%")


def test_a_link_of_another_farwire_is_attached_under_a_lease(wan: Wan, tmp_path: Path) -> None:
    with Wan() as other:
        held = other.held
        at = held.link.client.at
        held.release()
        until(lambda: held.link.state().lease is None)
        attached = wan.attach(at)
        attached.set(loss="5%")
        assert held.link.state().conditions == {"loss": "5%"}
        with pytest.raises(ApiError, match="409"):
            held.link.patch({"loss": "6%"})
        wan.stop()
        until(lambda: held.link.state().lease is None)
        assert held.link.state().conditions == {}


#: A program that takes the place of farwire where there is no container: its link is between the namespaces of `farwire exec`.
STUB = """#!/bin/sh
case "$1 $2 $3" in
    "exec "*) exec "$REAL" "$@";;
    "emulate --container web") shift 3;;
    "emulate --container removed")
        shift 3
        "$REAL" exec "$@" -- sh -c 'until [ -e "$0" ]; do sleep 0.02; done' "$REMOVED"
        echo "farwire: error: $CAUSE" >&2
        exit 1;;
    "emulate --container private") echo "farwire: this needs root" >&2; exit 3;;
    *) echo "farwire: no such container" >&2; exit 2;;
esac
"$REAL" exec "$@" -- sleep 1000 &
trap 'kill $!' TERM
wait $!
wait $!
exit 0
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "farwire"
    path.write_text(STUB)
    path.chmod(0o755)
    monkeypatch.setenv("REAL", find_farwire_bin())
    monkeypatch.setenv("FARWIRE_BIN", str(path))


def test_a_link_at_a_container_lasts_until_the_end(stub: None) -> None:
    with Wan() as wan:
        attached = wan.attach(container="web")
        attached.set(delay="5ms")
        assert wan.links == [attached]
        with attached.impaired(loss="1%"):
            assert attached.link.state().conditions == {"delay": "5ms", "loss": "1%"}
        at = attached.link.client.at
    assert "farwire: link" in wan.log
    assert not Path(at[len("unix:") :]).parent.exists()


def test_a_container_that_is_removed_before_its_link_is_no_failure(
    stub: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "removed"
    monkeypatch.setenv("REMOVED", str(removed))

    def end_because(cause: str) -> Wan:
        monkeypatch.setenv("CAUSE", cause)
        removed.unlink(missing_ok=True)
        wan = Wan()
        folder = Path(wan.attach(container="removed").link.client.at[len("unix:") :]).parent
        removed.touch()
        # The supervisor removes the folder when farwire has ended by itself.
        until(lambda: not folder.exists())
        return wan

    wan = end_because("container web was removed, and with it the network that it belonged to")
    wan.stop()
    assert "container web was removed" in wan.log
    wan = end_because("the forwarder has died")
    with pytest.raises(FarwireError, match="farwire failed with 1:(\n.*)*the forwarder has died"):
        wan.stop()


def test_a_container_that_cannot_get_a_link_is_said(stub: None) -> None:
    with Wan() as wan:
        with pytest.raises(MachineLacks, match="needs root"):
            wan.attach(container="private")
        with pytest.raises(FarwireError, match="ended with 2:\nfarwire: no such container"):
            wan.attach(container="nobody")
        for wrong in ({}, {"at": "127.0.0.1:1", "container": "web"}):
            with pytest.raises(ValueError, match="or container="):
                wan.attach(**wrong)
        assert wan.links == []


def test_a_link_at_a_container_ends_with_the_process(stub: None) -> None:
    script = """
import farwire, os, signal
wan = farwire.Wan()
print(wan.attach(container="web").link.client.at, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == -signal.SIGKILL
    folder = Path(ended.stdout.strip()[len("unix:") :]).parent
    until(lambda: not folder.exists())


@pytest.mark.parametrize("held", ["wan.held", "wan.attach(container='web')"])
def test_a_child_that_outlives_the_process_does_not_keep_the_link(held: str, stub: None) -> None:
    script = f"""
import farwire
wan = farwire.Wan()
wan.start(["sleep", "600"])
print({held}.link.client.at)
"""
    with killed_parent(script) as at:
        folder = Path(at[len("unix:") :]).parent
        until(lambda: not folder.exists())


def test_a_forked_child_cannot_start_anything_or_end_the_link(wan: Wan) -> None:
    wan.exec(["true"])

    def use_the_link() -> None:
        with pytest.raises(FarwireError, match="cannot use the near end of the link, because it was forked"):
            wan.exec(["true"])
        wan.stop()

    with forked(use_the_link):
        wan.exec([*PING, wan.server])
        wan.assert_met()
        wan.stop()
    assert "farwire: link" in wan.log


def test_the_summary_is_there_after_the_end() -> None:
    with Wan() as wan:
        wan.exec([*PING, wan.server])
        with pytest.raises(FaultNotMet, match="direction up|were dropped up"):
            wan.assert_met(dropped=True, direction="up", within=0)
    assert wan.summary is not None
    assert "farwire: link" in wan.log


def test_udp_sockets_are_behind_the_link_too(wan: Wan) -> None:
    with wan.socket(type=socket.SOCK_DGRAM) as client:
        with wan.impaired(up={"loss": "100%"}) as fault:
            client.sendto(b"lost", (wan.server, 9))
            fault.assert_met(dropped=1, direction="up")
