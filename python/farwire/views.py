"""What the API answers, as types. The pages of the API explain every key; keys that these types lack are ignored."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Type, TypeVar, Union

Json = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class LeaseState:
    """A lease as a link shows it."""

    #: The duration as it was requested, or `connection`.
    requested: str
    #: The revision whose conditions are in force again after the lease.
    reverts_to: int
    #: Only the holder gets the identifier.
    id: Optional[str] = None
    #: The end of a lease for a time, RFC 3339.
    until: Optional[str] = None

    @classmethod
    def of(cls, data: Json) -> LeaseState:
        return cls(data["for"], data["reverts_to"], data.get("id"), data.get("until"))


@dataclass(frozen=True)
class LinkState:
    """A link with its conditions in force."""

    name: str
    #: The number of the conditions in force. Each change adds one; the link starts with 1.
    revision: int
    #: The conditions as a link file has them.
    conditions: Json
    #: The conditions in one line.
    says: str
    #: The seed of every random draw.
    seed: int
    #: The time since which the conditions are in force, RFC 3339.
    since: str
    started: str
    ends: Sequence[str]
    command: Optional[str] = None
    #: The reason why the conditions cannot be changed; None if they can.
    fixed: Optional[str] = None
    lease: Optional[LeaseState] = None

    @classmethod
    def of(cls, data: Json) -> LinkState:
        lease = data.get("lease")
        return _read(cls, data, lease=lease and LeaseState.of(lease))


@dataclass(frozen=True)
class Change:
    """The result of a change."""

    revision: int
    #: The instant of the change in both directions, RFC 3339.
    at: str
    #: The same instant in seconds since the link's start.
    at_s: float
    dry_run: bool
    #: Packets that had arrived earlier and were still on their way.
    under_previous: int
    link: LinkState
    #: What the conditions mean, as `farwire link --json` has it; None if that was not computed in time.
    implies: Optional[Json] = None

    @classmethod
    def of(cls, data: Json) -> Change:
        return _read(cls, data, link=LinkState.of(data["link"]))


@dataclass(frozen=True)
class Revision:
    """An entry of the history of a link's conditions."""

    revision: int
    at: str
    at_s: float
    #: `start`, `api` or `lease ended`.
    by: str
    conditions: Json
    says: str

    @classmethod
    def of(cls, data: Json) -> Revision:
        return _read(cls, data)


@dataclass(frozen=True)
class RuleCounters:
    """The counters of the packets that match one rule."""

    name: str
    packets: int
    bytes: int
    delivered: int
    delivered_bytes: int
    marked: int
    edited: int
    #: Dropped packets by cause.
    dropped: Mapping[str, int]

    @classmethod
    def of(cls, data: Json) -> RuleCounters:
        return _read(cls, data)


@dataclass(frozen=True)
class HopDrops:
    """The packets that one further hop of a link dropped."""

    name: str
    #: Dropped packets by cause.
    dropped: Mapping[str, int]

    @classmethod
    def of(cls, data: Json) -> HopDrops:
        return _read(cls, data)


@dataclass(frozen=True)
class DirectionCounters:
    """The counters of one direction. Bytes are L2 without FCS."""

    #: Packets offered to the link.
    packets: int
    bytes: int
    delivered: int
    delivered_bytes: int
    #: Copies that the link made.
    copies: int
    #: Delivered packets that the link marked for congestion.
    marked: int
    #: Delivered packets whose bytes the link changed.
    edited: int
    #: Packets that the emulated network dropped, by cause: `loss`, `queue_full`, `aqm`, `too_big`, `policed`.
    dropped: Mapping[str, int]
    #: Packets that the emulator itself lost, by cause. The emulated network does not cause these losses.
    emulator_lost: Mapping[str, int]
    #: Packets that are on their way now.
    in_flight: int
    #: The mean delay of the delivered packets in milliseconds, queues included; None without packets.
    mean_delay_ms: Optional[float]
    #: The packets that match each rule, in the order of the rules.
    rules: Sequence[RuleCounters]
    #: The packets that each further hop of the link dropped.
    hops: Sequence[HopDrops]

    @classmethod
    def of(cls, data: Json) -> DirectionCounters:
        return _read(
            cls,
            data,
            mean_delay_ms=data["delay"].get("mean_ms"),
            rules=[RuleCounters.of(one) for one in data["rules"]],
            hops=[HopDrops.of(one) for one in data["hops"]],
        )

    @property
    def dropped_total(self) -> int:
        """Packets that the emulated network dropped, for any cause."""
        return sum(self.dropped.values())


@dataclass(frozen=True)
class Counters:
    """The counters of a link since a revision came into force."""

    since_revision: int
    since: str
    at: str
    #: The time between the two instants in seconds.
    span_s: float
    #: From the client's side to the server's.
    up: DirectionCounters
    #: From the server's side to the client's.
    down: DirectionCounters

    @classmethod
    def of(cls, data: Json) -> Counters:
        ways = {way: DirectionCounters.of(data[way]) for way in ("up", "down")}
        return _read(cls, data, **ways)


@dataclass(frozen=True)
class Event:
    """An event of a link."""

    #: The number of the event; the numbers are consecutive.
    id: int
    #: `sample`, `change` or `end`.
    kind: str
    #: A sample has the rates, counters and queues of both directions.
    data: Json

    @property
    def change(self) -> Optional[Revision]:
        """The change that the event tells of; None for other events."""
        return Revision.of(self.data) if self.kind == "change" else None


Wanted = Union[bool, int]


def _read(cls: Type[T], data: Json, **converted: Any) -> T:
    """Fills a dataclass with the keys of the same names, and with those that were converted."""
    names: List[str] = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    known = {name: data[name] for name in names if name in data}
    return cls(**{**known, **converted})
