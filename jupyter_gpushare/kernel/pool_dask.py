"""Dask on a pool: a scheduler beside the kernel, a worker on each GPU, everything between them over TLS.

Workers are those of dask-cuda where there are GPUs, which spill from GPU to host memory and from there to disk, and
plain ones on simulated devices. The certificate is made for this pool and goes to nobody else.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .pool import Pool

SCHEDULER_S = 60.0  # for a busy machine to import distributed
WORKERS_S = 120.0
END_S = 10.0
TLS = "DASK_DISTRIBUTED__COMM__"
SPILL = {  # of host memory: where a worker begins to spill, and where it stops taking more
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "0.6",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "0.7",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0.85",
}
CUDA_SPILL = ["--device-memory-limit", "0.8"]  # of a GPU's memory, from which on dask-cuda moves to the host's


def fill(pool: Pool) -> None:
    """Starts the cluster; `pool.client` is connected when all of its workers are there. Raises ImportError."""
    from distributed import Client
    from distributed.security import Security

    simulated = bool(pool._session.cluster().get("simulated"))
    if not simulated:
        import dask_cuda  # noqa: F401 the kernel's environment is the workers'
    security = Security.temporary()
    env = secured(security)
    far = any(not member["here"] for member in pool.seen["members"])
    scheduler = subprocess.Popen(  # noqa: S603 our own program
        [sys.executable, "-m", "jupyter_gpushare.kernel.pool_dask_scheduler", "" if far else "127.0.0.1"],
        env={**_environment(), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pool.closes(lambda: _ended(scheduler))
    assert scheduler.stdout is not None
    port = scheduler.stdout.readline().strip()
    if not port:
        raise RuntimeError("Dask's scheduler did not start; its message is above.")
    pool.start(worker(f"tls://{{notebook}}:{port}", simulated=simulated), {**env, **SPILL}, again=True)
    pool.client = Client(f"tls://127.0.0.1:{port}", security=security, set_as_default=True, name="notebook")
    pool.closes(pool.client.close)
    pool.client.wait_for_workers(pool.seen["gpus"], timeout=WORKERS_S)


def worker(scheduler: str, *, simulated: bool) -> list[str]:
    """The command of one worker; the pool starts it again where it ends, so it needs no nanny of its own."""
    common = [scheduler, "--name", "gpu-{rank}", "--no-dashboard", "--death-timeout", "60"]
    if simulated:
        program = ["distributed.cli.dask_worker", "--host", "{address}", "--nthreads", "1", "--no-nanny"]
        return [sys.executable, "-m", program[0], *common, *program[1:]]
    return [shutil.which("dask") or "dask", "cuda", "worker", *common, "--host", "{address}", *CUDA_SPILL]


def secured(security: Any) -> dict[str, str]:
    """Dask's configuration for one certificate of all, as variables: they are for no eyes but this user's."""
    return {
        f"{TLS}REQUIRE_ENCRYPTION": "True",
        f"{TLS}TLS__CA_FILE": security.tls_ca_file,
        **{f"{TLS}TLS__{role}__CERT": security.tls_client_cert for role in ("SCHEDULER", "WORKER", "CLIENT")},
        **{f"{TLS}TLS__{role}__KEY": security.tls_client_key for role in ("SCHEDULER", "WORKER", "CLIENT")},
    }


def _environment() -> dict[str, str]:
    from .pool import environment

    return {**environment(), "CUDA_VISIBLE_DEVICES": ""}


def _ended(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()  # it ends by that
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
