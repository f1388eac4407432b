"""Cells run in a kernel, by its manager's own connection or by one of the test's."""

from __future__ import annotations

import json
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient


async def run(manager: Any, code: str, timeout_s: float = 60.0, **connection: Any) -> str:
    """What the cell prints, or its error. `connection`: what of the manager's is another."""
    client = manager.client(**connection)
    client.start_channels()
    try:
        await client.wait_for_ready(timeout_s)
        return await on(client, code, timeout_s)
    finally:
        client.stop_channels()


async def on(client: AsyncKernelClient, code: str, timeout_s: float = 60.0) -> str:
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            said.append(content["text"])
        elif message["msg_type"] == "error":
            said.append(f"{content['ename']}: {content['evalue']}")

    await client.execute_interactive(code, timeout=timeout_s, output_hook=hear)
    return "".join(said).strip()


async def told(manager: Any, expression: str, imports: str = "os") -> Any:
    """The value of an expression there, by JSON."""
    return json.loads(await run(manager, f"import json, {imports}\nprint(json.dumps({expression}))"))
