"""Starts commands at one end of a link, for the test process.

farwire runs this file there. Its argument is the number of a socket to the test process, through which requests come;
each has the descriptors that it needs. When the test process ends, however it ends, the socket ends, and so does this
process; farwire then takes the link down and ends every command.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, Dict, List

#: The longest message. What may be longer comes in a file.
LONGEST = 4096
#: The most descriptors of a message.
MOST = 8
#: The state of a TCP socket that listens, and of a UDP socket without a peer (include/net/tcp_states.h).
TABLES = (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"))


def main(number: int, folder: str) -> None:
    control = socket.socket(fileno=number)
    # farwire waits until something listens at the far end. This does, until the first request.
    door = socket.create_server(("", 0))
    control.send(b"{}")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, LONGEST, MOST)
        door.close()
        if not message:
            # The test process did not say goodbye, so nobody else removes its folder.
            shutil.rmtree(folder, ignore_errors=True)
            return
        request = json.loads(message)
        if request["do"] == "end":
            return
        answer = socket.socket(fileno=descriptors[0])
        try:
            {"spawn": spawn, "socket": give_socket, "listens": say_listens}[request["do"]](
                answer, request, descriptors[1:]
            )
        except (OSError, ValueError) as error:
            named = getattr(error, "filename", None)
            why = getattr(error, "strerror", None) or str(error)
            tell(answer, {"error": f"{named}: {why}" if named else why})
            answer.close()
        finally:
            for descriptor in descriptors[1:]:
                os.close(descriptor)


def tell(answer: socket.socket, what: Dict[str, Any]) -> None:
    try:
        answer.send(json.dumps(what).encode())
    except OSError:
        pass


def spawn(answer: socket.socket, _: Dict[str, Any], descriptors: List[int]) -> None:
    """Starts a command. Signals for its group come through `answer`, and its exit code goes there."""
    with os.fdopen(os.dup(descriptors[0]), "rb") as file:
        wanted = json.loads(file.read())
    environment = wanted["environment"]
    server = os.environ.get("FARWIRE_SERVER")
    if server:
        environment["FARWIRE_SERVER"] = server
    process = subprocess.Popen(
        wanted["command"],
        stdin=descriptors[1],
        stdout=descriptors[2],
        stderr=descriptors[3],
        cwd=wanted["folder"],
        env=environment,
        start_new_session=True,
    )
    tell(answer, {"pid": process.pid})

    def report() -> None:
        # The process remains a zombie, so that no other process or group gets its number as long as signals are sent to it.
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if ended is not None:
            tell(answer, {"code": ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status})

    reporting = threading.Thread(target=report, daemon=True)

    def forward_signals() -> None:
        with answer:
            while True:
                try:
                    message = answer.recv(LONGEST)
                except OSError:
                    message = b""
                # Nobody waits for the command any more if the other end is closed.
                number = int(message) if message else int(signal.SIGKILL)
                # The command may have ended before its group.
                os.killpg(process.pid, number)
                if not message:
                    reporting.join()
                    process.wait()
                    return

    reporting.start()
    threading.Thread(target=forward_signals, daemon=True).start()


def give_socket(answer: socket.socket, request: Dict[str, Any], _: List[int]) -> None:
    """Creates a socket here, and sends it."""
    with answer, socket.socket(request["family"], request["type"]) as created:
        socket.send_fds(answer, [b"{}"], [created.fileno()])


def say_listens(answer: socket.socket, request: Dict[str, Any], _: List[int]) -> None:
    """Tells whether a socket listens on a port here."""
    with answer:
        tell(answer, {"listens": any(listens(*table, request["port"]) for table in TABLES)})


def listens(table: str, state: str, port: int) -> bool:
    try:
        with open(f"/proc/thread-self/net/{table}") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except FileNotFoundError:
        # There is no table for IPv6 if the kernel lacks it.
        return False
    return any(row[3] == state and int(row[1].rpartition(":")[2], 16) == port for row in rows)


if __name__ == "__main__":
    # An interrupt of the terminal is for the test process, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(int(sys.argv[1]), sys.argv[2])
