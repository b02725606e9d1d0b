"""Closes the descriptors of this package in children that the test process forks.

A link, a lease and a command end when the last copy of their descriptor is closed. A child that outlives the test process would keep them.
"""

from __future__ import annotations

import io
import os
import socket
import weakref
from typing import Tuple, Union

_Closed = Union[socket.socket, io.FileIO]

_kept: weakref.WeakSet[_Closed] = weakref.WeakSet()


def close_in_children(kept: _Closed) -> None:
    """Lets every child that is forked from now on close its copy of the descriptor. What the descriptor is connected to notices nothing."""
    _kept.add(kept)


def socketpair() -> Tuple[socket.socket, socket.socket]:
    """Returns a pair of sockets for messages, both of which children close."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in pair:
        close_in_children(one)
    return pair


def end(connection: socket.socket) -> None:
    """Ends the connection of a socket, also if another process has a copy of it, and closes the socket."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The other side has ended it, or the socket is closed.
        pass
    connection.close()


def _close() -> None:
    for kept in list(_kept):
        if isinstance(kept, socket.socket):
            # `close` waits for the files of a socket, such as that of an answer, and with TLS it could send something.
            number = kept.detach()
            if number >= 0:
                os.close(number)
        else:
            kept.close()


os.register_at_fork(after_in_child=_close)
