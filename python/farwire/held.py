"""A link whose conditions this process holds by a lease, and the proof that traffic met them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, Optional

from ._errors import FaultNotMet
from .client import Condition, Lease, Link
from .views import Change, Counters, DirectionCounters, Wanted

#: The interval between two readings of counters.
_POLL_S = 0.02

_READ: Dict[str, Callable[[DirectionCounters], int]] = {
    "met": lambda way: way.packets,
    "dropped": lambda way: way.dropped_total,
    "duplicated": lambda way: way.copies,
    "marked": lambda way: way.marked,
    "corrupted": lambda way: way.edited,
}
#: What is counted, after a number: "0 packets were dropped".
_WORDS = {
    "met": "arrived",
    "dropped": "were dropped",
    "duplicated": "were duplicated",
    "marked": "were marked",
    "corrupted": "were corrupted",
}


class Fault:
    """Conditions that were set, from the instant at which they came into force until they were replaced."""

    def __init__(self, link: Link, change: Change) -> None:
        self._link = link
        #: The conditions in one line.
        self.says = change.link.says
        #: The revision with these conditions.
        self.revision = change.revision
        self._final: Optional[Counters] = None

    def counters(self) -> Counters:
        """Returns the counters while the fault was in force, up to now if it still is."""
        return self._final or self._link.counters(self.revision)

    def end(self) -> None:
        """Keeps the counters as they are now, because other conditions are in force."""
        if self._final is None:
            self._final = self._link.counters(self.revision)

    def assert_met(
        self,
        *,
        dropped: Optional[Wanted] = None,
        duplicated: Optional[Wanted] = None,
        marked: Optional[Wanted] = None,
        corrupted: Optional[Wanted] = None,
        direction: Optional[str] = None,
        within: float = 1.0,
    ) -> None:
        """Raises FaultNotMet unless packets met the fault.

        Without arguments, at least one packet must have arrived. `dropped=True` demands that at least one was dropped,
        `dropped=5` at least 5, and `dropped=False` that none was; the same applies to `duplicated`, `marked` for
        congestion, and `corrupted`. `direction` is "up", "down", or None for both together. While the fault is in
        force, packets on their way have `within` seconds.
        """
        if direction not in (None, "up", "down"):
            raise ValueError(f"direction={direction!r}: write 'up', 'down' or None")
        wanted: Dict[str, Wanted] = {"met": True}
        given = {
            "dropped": dropped,
            "duplicated": duplicated,
            "marked": marked,
            "corrupted": corrupted,
        }
        wanted.update({name: value for name, value in given.items() if value is not None})
        end = time.monotonic() + within
        while True:
            counters = self.counters()
            missed = [name for name, want in wanted.items() if not _is_met(counters, name, want, direction)]
            if not missed:
                return
            if self._final is not None or time.monotonic() >= end:
                raise FaultNotMet(self._missed(counters, missed, wanted, direction))
            time.sleep(_POLL_S)

    def _missed(
        self,
        counters: Counters,
        missed: List[str],
        wanted: Dict[str, Wanted],
        direction: Optional[str],
    ) -> str:
        where = f" {direction}" if direction else ""
        lines = [f"the traffic did not meet revision {self.revision} ({self.says})"]
        for name in missed:
            count = _count(counters, name, direction)
            lines.append(f"{count} packets {_WORDS[name]}{where}; expected {_expected(wanted[name])}")
        return "\n".join([*lines, *lines_of(counters)])


class HeldLink:
    """A link under a lease of this process. When the process dies, the conditions before the lease return.

    It may be used by several threads, but conditions belong to the link: all threads see them.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._lease: Lease = link.lease()
        #: The conditions that were set last.
        self.fault = Fault(link, self._lease.change)

    def set(self, **conditions: Condition) -> Change:
        """Changes conditions: `delay="50ms"`, `up={"rate": "1mbit"}`. None removes one, and the others stay."""
        return self._changed(self._lease.patch(conditions))

    @contextmanager
    def impaired(self, **conditions: Condition) -> Iterator[Fault]:
        """Changes conditions for the time of a `with` block. At its end, those before it return."""
        before = self.link.state().conditions
        self.set(**conditions)
        fault = self.fault
        try:
            yield fault
        finally:
            self._lease.put(before)
            fault.end()

    def assert_met(
        self,
        *,
        dropped: Optional[Wanted] = None,
        duplicated: Optional[Wanted] = None,
        marked: Optional[Wanted] = None,
        corrupted: Optional[Wanted] = None,
        direction: Optional[str] = None,
        within: float = 1.0,
    ) -> None:
        """Raises FaultNotMet unless packets met the conditions that were set last, as `Fault.assert_met` says."""
        self.fault.assert_met(
            dropped=dropped,
            duplicated=duplicated,
            marked=marked,
            corrupted=corrupted,
            direction=direction,
            within=within,
        )

    def counters(self, since: Optional[int] = None) -> Counters:
        """Returns the counters since that revision, or since the link's start."""
        return self.link.counters(since)

    def describe(self) -> str:
        """Returns the changes and the counters of the link, for people."""
        changes = [f"{one.at_s:9.3f} s  revision {one.revision}: {one.says}" for one in self.link.history()]
        counters = self.link.counters()
        seed = f"seed {self.link.state().seed}"
        return "\n".join([f"link {self.link.name} ({seed})", *changes, *lines_of(counters)])

    def release(self) -> None:
        """Ends the lease: the conditions before it return. It may be called twice."""
        self._lease.close()

    def _changed(self, change: Change) -> Change:
        self.fault = Fault(self.link, change)
        return change


def lines_of(counters: Counters) -> List[str]:
    """Returns a line for each direction."""
    return [_line(name, way) for name, way in (("up", counters.up), ("down", counters.down))]


def _line(name: str, way: DirectionCounters) -> str:
    causes = ", ".join(f"{count} {cause}" for cause, count in way.dropped.items() if count)
    dropped = f"{way.dropped_total} dropped" + (f" ({causes})" if causes else "")
    mean = "" if way.mean_delay_ms is None else f", mean delay {way.mean_delay_ms:.1f} ms"
    lost = "".join(f", lost by the emulator: {count} ({cause})" for cause, count in way.emulator_lost.items())
    return f"{name}: {way.packets} packets arrived, {way.delivered} delivered, {dropped}{mean}{lost}"


def _count(counters: Counters, name: str, direction: Optional[str]) -> int:
    ways = {"up": counters.up, "down": counters.down}
    return sum(_READ[name](way) for key, way in ways.items() if direction in (None, key))


def _is_met(counters: Counters, name: str, want: Wanted, direction: Optional[str]) -> bool:
    count = _count(counters, name, direction)
    if want is False:
        return count == 0
    return count >= int(want)


def _expected(want: Wanted) -> str:
    return "none" if want is False else f"at least {int(want)}"
