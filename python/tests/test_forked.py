"""Descriptors in forked children."""

from __future__ import annotations

import io
import os
import socket

from conftest import forked
from farwire import _forked


def test_a_child_closes_its_copy_of_a_socket_and_of_a_pipe() -> None:
    mine, others = socket.socketpair()
    answer = mine.makefile("rb")
    reader, writer = os.pipe()
    pipe = io.FileIO(writer, "wb")
    for kept in (mine, pipe):
        _forked.close_in_children(kept)
    with forked(), others:
        others.settimeout(0.05)
        others.sendall(b"open\n")
        assert answer.readline() == b"open\n"
        answer.close()
        mine.close()
        assert others.recv(1) == b""
        pipe.close()
        os.set_blocking(reader, False)
        assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_connection_ends_in_the_parent_only() -> None:
    mine, others = _forked.socketpair()
    with others, forked(lambda: _forked.end(mine)):
        others.setblocking(False)
        mine.send(b"open")
        assert others.recv(10) == b"open"
        with socket.socket(fileno=os.dup(mine.fileno())):
            _forked.end(mine)
            assert others.recv(10) == b""
    _forked.end(mine)
