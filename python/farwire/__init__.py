"""farwire emulates a wide-area network. This package has its program, a client of its API, and a fixture for pytest.

>>> import farwire
>>> with farwire.Wan() as wan:                                     # doctest: +SKIP
...     wan.set(delay="50ms", loss="1%")
...     wan.exec(["ping", "-c", "10", "-i", "0.2", wan.server])
...     wan.assert_met(dropped=True)
"""

from __future__ import annotations

from ._errors import ApiError, CommandFailed, FarwireError, FaultNotMet, MachineLacks
from ._find import find_farwire_bin
from .client import Client, Condition, Lease, Link
from .held import Fault, HeldLink
from .views import (
    Change,
    Counters,
    DirectionCounters,
    Event,
    HopDrops,
    LeaseState,
    LinkState,
    Revision,
    RuleCounters,
)
from .wan import Process, Wan

__all__ = [
    "ApiError",
    "Change",
    "Client",
    "CommandFailed",
    "Condition",
    "Counters",
    "DirectionCounters",
    "Event",
    "FarwireError",
    "Fault",
    "FaultNotMet",
    "HeldLink",
    "HopDrops",
    "Lease",
    "LeaseState",
    "Link",
    "LinkState",
    "MachineLacks",
    "Process",
    "Revision",
    "RuleCounters",
    "Wan",
    "find_farwire_bin",
]
