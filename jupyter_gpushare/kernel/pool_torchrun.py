"""Ranks on a pool, as torchrun would start them: each has RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and its one GPU.

`torch.distributed.init_process_group("env://")` is all that a script needs. Nothing of torch is used here.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import BadDemand, Conflict

if TYPE_CHECKING:
    from .pool import Pool

FUNCTION = "GPUSHARE_POOL_FUNCTION"
FUNCTION_MAX = 90_000  # characters: the system lets one variable have 128 KiB
RUN = f"""
import base64, os, pickle
call, given = pickle.loads(base64.b64decode(os.environ.pop("{FUNCTION}")))
call(*given)
"""


def fill(pool: Pool) -> None:
    """`pool.client` launches: ``pool.client(script_or_function, *arguments)``."""
    pool.client = partial(launch, pool)


def launch(pool: Pool, what: str | Callable[..., object], *arguments: Any) -> dict[int, int]:
    """Runs a script (its path) or a function on every rank, shows what they print, and returns the exit codes by rank.

    Raises Conflict where one failed: the others are ended, as torchrun ends them. A function and its arguments travel
    by cloudpickle; large ones belong in a file.
    """
    env: dict[str, str] = {}
    if callable(what):
        import cloudpickle

        text = base64.b64encode(cloudpickle.dumps((what, arguments))).decode()
        if len(text) > FUNCTION_MAX:
            raise BadDemand(f"The function and its arguments are too large ({len(text)} characters); write a file.")
        cmd, env[FUNCTION] = [sys.executable, "-u", "-c", RUN], text
    else:
        cmd = [sys.executable, "-u", what, *map(str, arguments)]
    codes = pool.run(cmd, env)
    failed = {rank: code for rank, code in codes.items() if code}
    if failed:
        said = ", ".join(f"rank {rank} with {code}" for rank, code in sorted(failed.items()))
        raise Conflict(f"Not all ranks ended well: {said}.", reason="ranks_failed")
    return codes
