"""What was decided about this server's own sessions, as jupyter_events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

SCHEMA_ID = "https://schema.jupyter-gpushare.org/decision/v1"
SCHEMA = Path(__file__).parent / "event_schemas" / "decision" / "v1.yaml"


class EventLogger(Protocol):
    """What is used of jupyter_events."""

    def register_event_schema(self, schema: Path) -> None: ...

    def emit(self, *, schema_id: str, data: dict[str, Any]) -> object: ...


def emitter(logger: EventLogger) -> Callable[[dict[str, Any]], None]:
    """Registers the schema; what comes back emits one decision of this server's own user."""
    logger.register_event_schema(SCHEMA)

    def emit(decision: dict[str, Any]) -> None:
        plain = msgspec.json.decode(msgspec.json.encode(decision))  # schemas know lists, not tuples
        known = {name: value for name, value in plain.items() if name != "text" and value is not None}
        logger.emit(schema_id=SCHEMA_ID, data=known)

    return emit
