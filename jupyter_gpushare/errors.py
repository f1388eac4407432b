"""Every error a person can meet, each with the reason slug that REST, metrics and tests share.

::

    GPUShareError
    ├── BadDemand        400  a field of a request is not usable
    ├── NotAllowed       403  somebody else's session, or an admin's verb
    ├── NotFound         404  no such session, device or server
    ├── WrongMethod      405  there is such a path, but not for this method
    ├── Conflict         409  the thing asked for does not go with the present state
    │   ├── NeedsRestart      a running kernel cannot get it without a restart
    │   ├── OverLimit         more than this user may have
    │   └── Refused           the device's node said no
    ├── Unavailable      503  a part this needs is away; it comes back by itself
    └── NotManaged            said by the kernel side: no broker manages this process

The message says what happened, why, and what to do. Standard library only: kernels load this file.
"""

from __future__ import annotations


class GPUShareError(Exception):
    """Base of all errors that are part of the interface."""

    reason = "error"
    status = 500

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class BadDemand(GPUShareError):
    """A field is not usable. The message names the field, its value and what is allowed."""

    reason = "bad_demand"
    status = 400


class NotAllowed(GPUShareError):
    reason = "not_allowed"
    status = 403


class NotFound(GPUShareError):
    reason = "not_found"
    status = 404


class WrongMethod(GPUShareError):
    """`allow`: the methods this path takes, as the HTTP header of that name lists them."""

    reason = "wrong_method"
    status = 405

    def __init__(self, message: str, *, reason: str | None = None, allow: str = "") -> None:
        super().__init__(message, reason=reason)
        self.allow = allow


class Conflict(GPUShareError):
    reason = "conflict"
    status = 409


class NeedsRestart(Conflict):
    reason = "restart_required"


class OverLimit(Conflict):
    reason = "over_limit"


class Refused(Conflict):
    reason = "refused"


class Unavailable(GPUShareError):
    reason = "unavailable"
    status = 503


class NotManaged(GPUShareError):
    reason = "not_managed"
