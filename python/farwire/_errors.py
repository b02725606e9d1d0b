"""The errors of this package."""

from __future__ import annotations

from typing import Optional


class FarwireError(Exception):
    """farwire cannot do what was asked for. The message names the object and the cause."""


class MachineLacks(FarwireError):
    """This machine lacks something that farwire needs, such as user namespaces. The message names it and a workaround."""


class ApiError(FarwireError):
    """The API refused a request. The message has the request, the status and the cause."""

    def __init__(
        self, request: str, status: int, detail: str, field: Optional[str] = None
    ) -> None:
        named = f"{field}: " if field and not detail.startswith(field) else ""
        super().__init__(f"{request}: {status}: {named}{detail}")
        #: The method and the path.
        self.request = request
        #: The HTTP status.
        self.status = status
        #: The cause and its correction.
        self.detail = detail
        #: The field at fault, such as `up.loss`; None if the request names none.
        self.field = field


class CommandFailed(FarwireError, AssertionError):
    """A command behind the link failed or did not end in time. The message has the end of its output."""


class FaultNotMet(FarwireError, AssertionError):
    """The traffic of a test did not meet the fault that the test is about."""
