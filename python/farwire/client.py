"""A client of farwire's API, over a Unix socket, on loopback, or with TLS. It needs only the standard library."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import ssl
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union
from urllib.parse import quote, urlencode, urlsplit

from . import _forked
from ._errors import ApiError, FarwireError
from .views import Change, Counters, Event, Json, LinkState, Revision

#: The value of a condition as a link file has it: "20ms", a table, a list; None removes the condition.
Condition = Union[str, int, float, None, Mapping[str, Any], Sequence[Any]]

_TOKEN = "FARWIRE_TOKEN"
_PATCH = "application/merge-patch+json"


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _PinnedConnection(http.client.HTTPSConnection):
    """HTTPS to a server that is identified by the SHA-256 fingerprint of its certificate, whoever signed that."""

    def __init__(self, host: str, port: int, timeout: Optional[float], pin: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        super().__init__(host, port, timeout=timeout, context=context)
        self._pin = pin.lower().replace("sha256:", "").replace(":", "")

    def connect(self) -> None:
        super().connect()
        assert isinstance(self.sock, ssl.SSLSocket)
        shown = hashlib.sha256(self.sock.getpeercert(True) or b"").hexdigest()
        if shown != self._pin:
            self.close()
            raise FarwireError(
                f"{self.host}:{self.port}: the server has another certificate than pin names: its fingerprint is sha256:{shown}"
            )


class Client:
    """The API at an address.

    `at` is `unix:PATH`, `HOST:PORT`, or a URL as farwire prints it, which may have the token. `token` is by default that
    of the URL or of the variable FARWIRE_TOKEN. `pin` is the fingerprint of the certificate, which an `https` address
    needs. `timeout` is in seconds. A client may be used by several threads: every request has its own connection.
    """

    def __init__(
        self,
        at: str,
        *,
        token: Optional[str] = None,
        pin: Optional[str] = None,
        timeout: float = 10.0,
    ) -> None:
        self.at = at
        self.timeout = timeout
        self._pin = pin
        self._path = at[len("unix:") :] if at.startswith("unix:") else None
        url = urlsplit(at if "://" in at else f"http://{at}")
        self._is_tls = url.scheme == "https"
        self._host, self._port = url.hostname or "", 0
        if self._path is None:
            try:
                self._port = url.port or 0
            except ValueError:
                pass
            if url.scheme not in ("http", "https") or not self._host or not self._port:
                raise FarwireError(
                    f"{at}: write unix:PATH, ADDRESS:PORT, or the URL that farwire prints"
                )
            if self._is_tls and not pin:
                raise FarwireError(f"{at}: pin is missing: name the fingerprint that farwire prints")
        in_url = url.fragment[len("token=") :] if url.fragment.startswith("token=") else None
        self._token = in_url or os.environ.get(_TOKEN) if token is None else token

    def links(self) -> List[LinkState]:
        """Returns all running links."""
        links: List[LinkState] = []
        offset: Optional[int] = 0
        while offset is not None:
            part = self.request("GET", f"/v1/links?offset={offset}")
            links += [LinkState.of(one) for one in part["links"]]
            offset = part["next"]
        return links

    def link(self, name: str = "link") -> Link:
        """Returns the link of this name. It is asked for when it is used."""
        return Link(self, name)

    def profiles(self) -> List[Json]:
        """Returns the user's own profiles and those that ship: `name`, `about`, `source`, `conditions`."""
        profiles: List[Json] = self.request("GET", "/v1/profiles")
        return profiles

    def run(self) -> Optional[Json]:
        """Returns the progress of the experiment; None if none runs."""
        progress: Optional[Json] = self.request("GET", "/v1/run")
        return progress

    def request(
        self,
        method: str,
        path: str,
        body: Optional[Json] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Any:
        """Makes a request and returns its JSON. Raises ApiError if it is refused."""
        return json.loads(self.text(method, path, body, headers) or "null")

    def text(
        self,
        method: str,
        path: str,
        body: Optional[Json] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> str:
        """Makes a request and returns the text of the answer. Raises ApiError if it is refused."""
        with self.open(method, path, body, headers, self.timeout) as answer:
            return answer.read().decode()

    def open(
        self,
        method: str,
        path: str,
        body: Optional[Json] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> _Answer:
        """Makes a request and returns the answer, whose body may go on. Raises ApiError if it is refused."""
        connection = self._connection()
        sent = {**({"Content-Type": _PATCH} if method == "PATCH" else {}), **(headers or {})}
        if method == "PUT":
            sent["Content-Type"] = "application/json"
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        request = f"{method} {path} at {self.at.split('#')[0]}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            # The connection forgets its socket if nothing may follow the answer.
            stream: socket.socket = connection.sock
            answer = connection.getresponse()
            if answer.status >= 300:
                raise _refused(request, answer)
            if answer.getheader("farwire-version") is None:
                raise FarwireError(f"{request}: another program answers there, not farwire")
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise FarwireError(f"{request}: {error or type(error).__name__}") from error
        except FarwireError:
            connection.close()
            raise
        _forked.close_in_children(stream)
        return _Answer(connection, stream, answer, request)

    def _connection(self) -> http.client.HTTPConnection:
        if self._path is not None:
            return _UnixConnection(self._path, self.timeout)
        if self._is_tls:
            return _PinnedConnection(self._host, self._port, self.timeout, self._pin or "")
        return http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)


class Link:
    """A link at an API."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        #: The path of the link at its API.
        self.path = f"/v1/links/{quote(name, safe='')}"

    def state(self) -> LinkState:
        """Returns the link with its conditions in force."""
        return LinkState.of(self.client.request("GET", self.path))

    def patch(
        self,
        conditions: Mapping[str, Condition],
        *,
        lease: Optional[str] = None,
        lease_for: Optional[str] = None,
        if_revision: Optional[int] = None,
        dry_run: bool = False,
    ) -> Change:
        """Changes these conditions; None removes one, and the others stay.

        `lease` is the ID of the lease that the caller holds. With `lease_for`, such as "60s", the earlier conditions
        return after that time. With `if_revision`, the change is made only while that revision is in force.
        """
        return self._change("PATCH", conditions, lease, lease_for, if_revision, dry_run)

    def put(
        self,
        conditions: Mapping[str, Condition],
        *,
        lease: Optional[str] = None,
        lease_for: Optional[str] = None,
        if_revision: Optional[int] = None,
        dry_run: bool = False,
    ) -> Change:
        """Sets exactly these conditions, with the same arguments as `patch`."""
        return self._change("PUT", conditions, lease, lease_for, if_revision, dry_run)

    def lease(self) -> Lease:
        """Takes a lease that lasts as long as its connection: until it is closed, or this process ends."""
        return Lease(self)

    def end_lease(self, lease: Optional[str] = None) -> Change:
        """Ends this lease, or whatever lease there is."""
        headers = {"Farwire-Lease": lease} if lease else None
        return Change.of(self.client.request("DELETE", f"{self.path}/lease", None, headers))

    def counters(self, since: Optional[int] = None) -> Counters:
        """Returns the counters since that revision came into force, or since the link's start."""
        query = "" if since is None else f"?since={since}"
        return Counters.of(self.client.request("GET", f"{self.path}/counters{query}"))

    def history(self) -> List[Revision]:
        """Returns the changes made while the link ran."""
        changes = self.client.request("GET", f"{self.path}/history")["changes"]
        return [Revision.of(one) for one in changes]

    def history_file(self) -> str:
        """Returns the changes as a link file with a schedule, which repeats them: `farwire exec --link FILE`."""
        return self.client.text("GET", f"{self.path}/history/link")

    def events(self, after: Optional[int] = None) -> Iterator[Event]:
        """Yields the events of the link as they come, ten samples each second, until the link ends.

        `after` is the ID of the last event that was received; events of the last minute are repeated.
        """
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        with self.client.open("GET", f"{self.path}/events", None, headers, 60.0) as answer:
            fields: Dict[str, str] = {}
            for line in answer:
                text = line.decode().rstrip("\r\n")
                if text:
                    name, _, value = text.partition(":")
                    fields[name] = value[1:] if value.startswith(" ") else value
                    continue
                if "event" in fields:
                    data = json.loads(fields.get("data") or "null") or {}
                    yield Event(int(fields.get("id", 0)), fields["event"], data)
                    if fields["event"] == "end":
                        return
                fields = {}

    def _change(
        self,
        method: str,
        conditions: Mapping[str, Condition],
        lease: Optional[str],
        lease_for: Optional[str],
        if_revision: Optional[int],
        dry_run: bool,
    ) -> Change:
        query = {"for": lease_for, "dry_run": "1" if dry_run else None}
        given = urlencode({key: value for key, value in query.items() if value})
        headers = {} if lease is None else {"Farwire-Lease": lease}
        if if_revision is not None:
            headers["If-Match"] = f'"{if_revision}"'
        path = f"{self.path}?{given}" if given else self.path
        return Change.of(self.client.request(method, path, conditions, headers))


class Lease:
    """A lease on a link that lasts as long as its connection. A process that dies closes the connection.

    A forked child does not keep it. It is also a context manager, which ends the lease.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        path = f"{link.path}?for=connection"
        self._answer = link.client.open("PATCH", path, {}, None, link.client.timeout)
        try:
            #: The change that took the lease. It changed no condition.
            self.change = Change.of(json.loads(self._answer.first_line()))
        except (FarwireError, KeyError, ValueError) as error:
            self._answer.close()
            raise FarwireError(f"{self._answer.request}: no lease was granted: {error}") from error
        held = self.change.link.lease
        #: The identifier of the lease.
        self.id = (held.id if held else None) or ""

    def patch(self, conditions: Mapping[str, Condition]) -> Change:
        """Changes these conditions under the lease."""
        return self.link.patch(conditions, lease=self.id)

    def put(self, conditions: Mapping[str, Condition]) -> Change:
        """Sets exactly these conditions under the lease."""
        return self.link.put(conditions, lease=self.id)

    def close(self) -> None:
        """Ends the lease: the earlier conditions return. It may be called twice."""
        self._answer.close()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Answer:
    """An answer whose body may go on."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        stream: socket.socket,
        answer: http.client.HTTPResponse,
        request: str,
    ) -> None:
        self.request = request
        self._connection = connection
        self._stream = stream
        self._answer = answer

    def read(self) -> bytes:
        """Returns the rest of the body."""
        return self._checked(self._answer.read)

    def first_line(self) -> bytes:
        """Returns the body up to its first end of line."""
        return self._checked(self._answer.readline)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            line = self.first_line()
            if not line:
                return
            yield line

    def _checked(self, read: Any) -> bytes:
        try:
            got: bytes = read()
            return got
        except (OSError, http.client.HTTPException) as error:
            raise FarwireError(f"{self.request}: {error or type(error).__name__}") from error

    def close(self) -> None:
        _forked.end(self._stream)
        self._answer.close()
        self._connection.close()

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refused(request: str, answer: http.client.HTTPResponse) -> ApiError:
    """Returns the error that a refusal describes (RFC 9457)."""
    text = answer.read().decode(errors="replace")
    try:
        problem = json.loads(text)
        return ApiError(request, answer.status, problem["detail"], problem.get("field"))
    except (ValueError, KeyError, TypeError):
        return ApiError(request, answer.status, text.strip() or answer.reason)
