"""What was decided about this server's own sessions, as jupyter_events; and what is heard of files there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

SCHEMA_ID = "https://schema.jupyter-gpushare.org/decision/v1"
CONTENTS = "https://events.jupyter.org/jupyter_server/contents_service/v1"
SCHEMA = Path(__file__).parent / "event_schemas" / "decision" / "v1.yaml"


class EventLogger(Protocol):
    """What is used of jupyter_events."""

    def register_event_schema(self, schema: Path) -> None: ...

    def add_listener(self, *, modified: bool, schema_id: str, listener: Callable[..., Any]) -> None: ...

    def emit(self, *, schema_id: str, data: dict[str, Any]) -> object: ...


def emitter(logger: EventLogger) -> Callable[[dict[str, Any]], None]:
    """Registers the schema; what comes back emits one decision of this server's own user."""
    logger.register_event_schema(SCHEMA)

    def emit(decision: dict[str, Any]) -> None:
        plain = msgspec.json.decode(msgspec.json.encode(decision))  # schemas know lists, not tuples
        known = {name: value for name, value in plain.items() if name != "text" and value is not None}
        logger.emit(schema_id=SCHEMA_ID, data=known)

    return emit


def hear_renames(logger: EventLogger, renamed: Callable[[str, str], None]) -> None:
    """Tells of each file or folder that is renamed through this server: its path before, and now."""

    async def heard(logger: object, schema_id: str, data: dict[str, Any]) -> None:
        if data["action"] == "rename":
            renamed(data["source_path"], data["path"])

    logger.add_listener(modified=False, schema_id=CONTENTS, listener=heard)
