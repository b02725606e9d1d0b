"""The client of the API: addresses, tokens, events, leases."""

from __future__ import annotations

import re
import subprocess
from typing import Iterator

import pytest

from conftest import forked, killed_parent, until
from farwire import ApiError, Client, FarwireError, find_farwire_bin


@pytest.fixture
def url() -> Iterator[str]:
    """The printed URL of a link at a port of loopback, with its token."""
    command = [find_farwire_bin(), "exec", "--delay", "5ms", "--listen", "127.0.0.1:0", "--", "sleep", "600"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        found = (re.search(r"http://\S+", line) for line in lines)
        yield next(match.group() for match in found if match)
    finally:
        process.terminate()
        process.stderr.close()
        process.wait()


def test_the_printed_url_gives_access(url: str) -> None:
    client = Client(url)
    (state,) = client.links()
    assert (state.name, state.revision, state.conditions) == ("link", 1, {"delay": "5ms"})
    assert any(profile["name"] == "mobile" for profile in client.profiles())
    assert client.run() is None
    address = url.split("/")[2]
    assert Client(address, token=url.partition("token=")[2]).link().state() == state
    with pytest.raises(ApiError, match="401"):
        Client(address, token="x" * 32).links()


def test_a_long_list_of_links_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {
        "revision": 1,
        "conditions": {},
        "says": "",
        "seed": 1,
        "since": "2026-11-24T17:48:44Z",
        "started": "2026-11-24T17:48:44Z",
        "ends": ["client", "server"],
    }
    parts = {
        "/v1/links?offset=0": {"links": [{"name": "a", **link}, {"name": "b", **link}], "next": 2},
        "/v1/links?offset=2": {"links": [{"name": "c", **link}], "next": None},
    }
    client = Client("unix:/nowhere.sock")
    monkeypatch.setattr(client, "request", lambda method, path: parts[path])
    assert [state.name for state in client.links()] == ["a", "b", "c"]


def test_changes_leases_and_history_are_typed(url: str) -> None:
    link = Client(url).link()
    assert link.patch({"loss": "1%"}, dry_run=True).dry_run
    change = link.patch({"loss": "1%"}, if_revision=1)
    assert change.revision == 2
    assert change.implies is not None
    with pytest.raises(ApiError, match="412"):
        link.put({}, if_revision=1)
    timed = link.put({"delay": "9ms"}, lease_for="60s")
    assert timed.link.lease is not None and timed.link.lease.until is not None
    with pytest.raises(ApiError, match="409"):
        link.patch({"loss": "2%"})
    assert link.patch({"loss": "2%"}, lease=timed.link.lease.id).link.conditions == {"delay": "9ms", "loss": "2%"}
    assert link.end_lease().link.conditions == {"delay": "5ms", "loss": "1%"}
    assert [one.by for one in link.history()] == ["start", "api", "api", "api", "lease ended"]
    assert "schedule" in link.history_file()
    assert link.counters(since=2).since_revision == 2


def test_a_lease_lasts_as_long_as_its_connection(url: str) -> None:
    link = Client(url).link()
    with link.lease() as lease:
        lease.put({"delay": "7ms"})
        with pytest.raises(ApiError, match="409"):
            link.lease()
    until(lambda: link.state().lease is None)
    assert link.state().conditions == {"delay": "5ms"}


def test_a_forked_child_neither_keeps_a_lease_nor_ends_it(url: str) -> None:
    link = Client(url).link()
    lease = link.lease()
    lease.patch({"delay": "7ms"})
    with forked(lease.close):
        assert link.state().lease is not None
        assert link.state().conditions == {"delay": "7ms"}
        lease.close()
        until(lambda: link.state().lease is None)
    assert link.state().conditions == {"delay": "5ms"}


def test_a_child_that_outlives_its_parent_does_not_keep_a_lease(url: str) -> None:
    script = """
import farwire, sys
held = farwire.HeldLink(farwire.Client(sys.argv[1]).link())
held.set(delay="7ms")
"""
    link = Client(url).link()
    with killed_parent(script, url):
        until(lambda: link.state().lease is None)
    assert link.state().conditions == {"delay": "5ms"}


def test_events_tell_of_samples_and_changes(url: str) -> None:
    link = Client(url).link()
    is_changed = False
    for event in link.events():
        if event.kind == "sample" and not is_changed:
            link.patch({"loss": "3%"})
            is_changed = True
        if event.change is not None and event.change.revision == 2:
            assert event.change.conditions == {"delay": "5ms", "loss": "3%"}
            break
    assert is_changed


@pytest.mark.parametrize("at", ["nowhere", "ftp://127.0.0.1:1", "127.0.0.1:port"])
def test_an_address_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(FarwireError, match="write unix:PATH"):
        Client(at)


def test_tls_needs_a_pin() -> None:
    with pytest.raises(FarwireError, match="pin is missing"):
        Client("https://192.0.2.1:7700")


def test_nobody_at_an_address_is_said() -> None:
    with pytest.raises(FarwireError, match="GET /v1/links.* at unix:/nowhere.sock: .*No such file"):
        Client("unix:/nowhere.sock").links()
