"""The program of a pool's scheduler: says its port, and ends with who started it."""

from __future__ import annotations

import asyncio
import sys


async def serve(host: str) -> None:
    from distributed import Scheduler

    async with Scheduler(host=host or None, port=0, protocol="tls", dashboard=False) as scheduler:
        sys.stdout.write(f"{scheduler.address.rpartition(':')[2]}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # its end is ours


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
