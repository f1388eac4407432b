"""The past, summed by the database: utilisation and share over time, GPU-seconds by whom and when."""

from __future__ import annotations

import math
from datetime import datetime, timezone

from sqlalchemy import Connection, func, select

from . import tables
from .journal import BUCKET_S
from .rows import History, HistoryPoint, HistoryQuery

DAY_S = 86400
DEFAULT_S = 7 * DAY_S
POINTS_MAX = 500
BY_DAYS_S = 14 * DAY_S  # what spans so much is answered from the sums of days


def history(connection: Connection, broker: str, query: HistoryQuery, now: float) -> History:
    """Answers a query about what one broker wrote. A stretch of BUCKET_S seconds, or a day where BY_DAYS_S or more are
    asked for, counts when it overlaps that time; GPU-seconds of users in no group are in no group's sum."""
    until = now if query.until is None else query.until
    since = until - DEFAULT_S if query.since is None else query.since
    by_days = until - since >= BY_DAYS_S and query.session is None
    table, width = (tables.usage_days, DAY_S) if by_days else (tables.usage, BUCKET_S)
    # Whole seconds, as the column's: PostgreSQL uses no index to compare them with others.
    within = (table.c.at > math.floor(since - width)) & (table.c.at <= math.floor(until))
    asked = then = (table.c.broker == broker) & within
    if query.session is not None:
        asked &= table.c.session == query.session
    if query.user is not None:
        asked &= table.c.user == query.user
    step = width * max(math.ceil((until - since) / (width * POINTS_MAX)), 1)

    begin = (table.c.at - table.c.at % step).label("begin")
    day = (table.c.at - table.c.at % DAY_S).label("day")
    gpu_s = func.sum(table.c.gpu_s).label("gpu_s")
    held_s, used_s, known_s = func.sum(table.c.held_s), func.sum(table.c.used_s), func.sum(table.c.known_s)

    points = connection.execute(
        select(begin, held_s, gpu_s, used_s, known_s).where(asked).group_by(begin).order_by(begin)
    )
    users = connection.execute(select(table.c.user, gpu_s).where(asked).group_by(table.c.user))
    in_group = asked & (func.coalesce(table.c.group, "") != "")
    groups = connection.execute(select(table.c.group, gpu_s).where(in_group).group_by(table.c.group))
    everybody = connection.execute(select(func.sum(table.c.gpu_s)).where(then)).scalar()
    days = connection.execute(select(day, gpu_s).where(asked).group_by(day).order_by(day))
    return History(
        since=since,
        until=until,
        step_s=step,
        series=tuple(
            HistoryPoint(
                at=at,
                share=gpu / held if held > 0 else None,
                utilization=used / known if known > 0 else None,
                gpu_s=gpu,
            )
            for at, held, gpu, used, known in points
        ),
        by_user={row.user: row.gpu_s for row in users},
        by_group={row.group: row.gpu_s for row in groups},
        by_day={datetime.fromtimestamp(at, timezone.utc).date().isoformat(): total for at, total in days},
        total_gpu_s=everybody or 0.0,
    )
