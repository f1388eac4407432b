"""`c.GPUShare`: what a machine lends, and where what it knows is kept and asked for."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Literal

from traitlets import Bunch, default, validate
from traitlets.config import Configurable

from .. import model
from ..errors import BadDemand
from .traits import Choice, Number, Switch, Table, Text, as_type, unusable

_HTTP = r"https?://[^/\s,][^\s,]*"
_NATS = r"(nats|tls)://[^\s,/]+"


class GPUShare(Configurable):
    """What this server lends to its kernels, and where it keeps and asks for what it knows."""

    devices = Choice(
        ("auto", "nvml", "simulated", "off"),
        "auto",
        help="""
        Which GPUs are lent: `auto` those that NVML shows, none where there is no NVML; `nvml` the same, but its absence
        is reported as a fault; `simulated` those of `simulated_inventory`; `off` none, kernels start as without us.
        """,
    )
    simulated_inventory = Text(
        "2x4xA100",
        help="The simulated GPUs: `<servers>x<devices>x<model>`, such as `1x2xA100`, or the path of a JSON file.",
    )
    broker_url = Text(
        "",
        help="""
        The broker to ask; GPUSHARE_BROKER_URL by default, which a hub's spawner sets. Empty: this machine's
        shared one if its socket is there, else this user's, else one in this server. Otherwise a broker's base URL (`https://…/services/gpushare/`;
        several with commas between them where a standby may take over) or `unix:///run/gpushare/broker.sock`.
        """,
    )
    ledger_url = Text(
        "",
        help="""
        Where leases, usage and decisions are kept: any SQLAlchemy URL, such as `sqlite:////srv/gpushare/ledger.sqlite`
        or `postgresql+psycopg://user:password@host/gpushare`. Empty: SQLite on a local disk, in `/var/lib/gpushare` if
        that folder can be written, else in a folder of the user's that is not on a network file system.
        """,
    )
    bus_url = Text(
        "",
        help="""
        How broker and GPU servers talk. Empty: within the broker's process, which manages this machine's GPUs; or NATS,
        `nats://user:password@host:4222` or `tls://…`, several with commas between them: then every GPU server runs
        `jupyter gpushare agent`, and a broker has no GPUs of its own.
        """,
    )
    bus_ca_file = Text(
        "",
        help="A PEM file with who signed the certificates of NATS servers (`tls://…`). Empty: whom the system trusts.",
    )
    mask_format = Choice(
        ("uuid", "index"),
        "uuid",
        help="""
        How devices are named in CUDA_VISIBLE_DEVICES: `uuid`, or `index` for old libraries that call `int()` on it
        (always together with CUDA_DEVICE_ORDER=PCI_BUS_ID).
        """,
    )
    terminals = Choice(
        ("leave", "hide"),
        "leave",
        help="What a JupyterLab terminal sees: `leave` the server's own mask, or `hide` every GPU.",
    )
    server_name = Text(
        "localhost",
        help="This machine's name in the cluster; GPUSHARE_SERVER_NAME by default, without it the host name.",
    )
    default_gpus = Number(
        0.1,
        help="""
        What a kernel gets that asks for nothing: 0 no GPU; below 1 that share of one device is guaranteed and may burst
        to all of it; a whole number n: n devices, lent to others while idle.
        """,
    )
    default_exclusive = Switch(
        False, help="Whether a kernel that asks for nothing has its device to itself while it holds it."
    )
    when_full = Choice(
        ("wait", "cpu", "fail"),
        "wait",
        help="""
        What becomes of a start that needs whole devices when none is free: `wait` up to `start_wait_s`, then start
        without a GPU and keep the place in line; `cpu` at once; `fail` with a clear message.
        """,
    )
    start_wait_s = Number(10, most=600, help="Seconds such a start may wait.")
    max_devices_per_user = Number(
        0, whole=True, help="Devices a user may hold over all of their servers and sessions; 0: no cap."
    )
    simulated_user = Text(
        "", help="Owner of this server's sessions, for demonstrations; only with `devices = 'simulated'`."
    )
    sample_interval_s = Number(
        1.0, least=0.1, most=60, help="Seconds between two readings of NVML; twice that at rest."
    )
    lease_ttl_s = Number(
        15,
        least=1,
        help="Seconds without a sign of life from its server after which a lease ends, once its processes are gone.",
    )
    park_many = Switch(
        False,
        help="""
        Whether sessions of several processes or several GPUs are parked as well, on real GPUs. Where their processes
        share GPU memory (NCCL, CUDA IPC) what was parked may not come back, and that cannot be seen beforehand.
        """,
    )
    sharing = Choice(
        ("timeslice", "mps", "exclusive"),
        "timeslice",
        help="""
        How GPUs are shared by those who compute at once: `timeslice` in turns, the only mode in which they can be
        parked; `mps` at the same time, under a ceiling each, and one user's fault ends everybody's work there;
        `exclusive` not at all. MIG instances are used as they are.
        """,
    )
    sharing_of = Table(
        help="""
        Other modes for some GPUs, by UUID (or its beginning) or part of the model's name:
        `{"A100": "mps", "GPU-5fd1": "exclusive"}`.
        """
    )
    remote_servers = Table(
        help="""
        Other machines on which this server's kernels may run when their GPU is there, by their agent's `server_name`:
        `{"beta": "ssh://beta.example.org"}`, or `ssh://user@host:port`. Users must be able to log in there by SSH
        without a password, under the same name, with the same home folder and the same kernels. Empty: kernels run
        where their server does.
        """
    )
    remote_ssh_config = Text(
        "",
        help="""
        A file as ssh_config(5) describes (IdentityFile, UserKnownHostsFile, GlobalKnownHostsFile, ProxyJump, …) by
        which those machines are reached. Empty: the user's own.
        """,
    )
    remote_keep_s = Number(
        600,
        least=10,
        help="Seconds that a kernel on another machine goes on while its server has gone or cannot be reached.",
    )
    remote_python = Text("python3", help="The Python on those machines that looks after a kernel there; 3.6 or later.")
    gate_check = Text(
        "",
        help="""
        The JSON file that `python -m tests.gpu` wrote on this machine. Where it measured that locking processes is
        cheap on this GPU with this driver, the time of time-sliced devices is divided by shares; else the driver
        divides it evenly, and who computes when is steered at cells' starts alone.
        """,
    )
    mps_folder = Text(
        "",
        help="""
        Where the pipes and logs of MPS servers lie, a short path. Empty: `/run/gpushare/mps` for root, whose servers
        serve everybody; else a folder in the user's runtime folder.
        """,
    )
    mps_burst = Number(
        2.0,
        least=1,
        help="""
        Under MPS a kernel can use at most its guarantee times this, and the whole GPU at most. Fixed at its start.
        """,
    )
    mps_memory_limit = Switch(
        False,
        help="""
        Under MPS, whether the memory a kernel asks for also limits what it can allocate. For each of its processes, and
        fixed at its start: more memory needs a restart then.
        """,
    )
    lock_dir = Text(
        help="""
        Machine-wide folder whose files say which broker has which device; GPUSHARE_LOCK_DIR by default. Empty: the
        machine's usual place. Every broker of a machine must use the same.
        """
    )

    @default("server_name")
    def _host_name(self) -> str:
        return os.environ.get("GPUSHARE_SERVER_NAME") or socket.gethostname() or "localhost"

    @property
    def names_its_server(self) -> bool:
        """Whether `server_name` was chosen, not taken from the host."""
        return "server_name" in self.config.GPUShare or bool(os.environ.get("GPUSHARE_SERVER_NAME"))

    @default("broker_url")
    def _broker_of_environment(self) -> str:
        return os.environ.get("GPUSHARE_BROKER_URL", "")

    @default("lock_dir")
    def _lock_dir_of_environment(self) -> str:
        return os.environ.get("GPUSHARE_LOCK_DIR", "")

    @validate("simulated_inventory")
    def _inventory_is_known(self, proposal: Bunch) -> str:
        value = proposal.value
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*x\S.*", value) and not Path(value).is_file():
            allowed = "it must be <servers>x<devices>x<model>, such as 1x2xA100, or the path of a JSON file"
            unusable(proposal.trait, self, value, allowed)
        return value

    @validate("sharing_of")
    def _modes_are_known(self, proposal: Bunch) -> dict[str, str]:
        for device, mode in as_type(proposal, dict[str, Literal["timeslice", "mps", "exclusive"]]).items():
            if not device.strip():
                allowed = f"{mode!r} must be for a UUID or part of a model's name"
                unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    @validate("remote_servers")
    def _machines_are_known(self, proposal: Bunch) -> dict[str, str]:
        for server, place in as_type(proposal, dict[str, str]).items():
            fits = re.fullmatch(r"ssh://([^@/\s:]+@)?([^@/\s:\[\]]+|\[[0-9a-fA-F:]+\])(:(\d{1,5}))?/?", place)
            if fits is None or int(fits[4] or 22) not in range(1, 65536):
                shown = {server: re.sub(r"://[^@/]*@", "://…@", place)}  # a password does not belong in a log
                unusable(proposal.trait, self, shown, "a machine must be at ssh://host or ssh://user@host:port")
        return proposal.value

    @validate("broker_url", "ledger_url", "bus_url")
    def _url_is_known(self, proposal: Bunch) -> str:
        form, allowed = {
            "broker_url": (rf"{_HTTP}(,{_HTTP})*|unix:///\S+", "it must be empty, http(s)://…, or unix:///path"),
            "ledger_url": (r"[a-z0-9_+]+://\S*", "it must be empty, sqlite:////path, or another SQLAlchemy URL"),
            "bus_url": (rf"{_NATS}(,{_NATS})*", "it must be empty, nats://host:4222 or tls://host:4222"),
        }[proposal.trait.name]
        if proposal.value and not re.fullmatch(form, proposal.value):
            shown = re.sub(r"://[^@/]*@", "://…@", proposal.value)  # a password does not belong in a log
            unusable(proposal.trait, self, shown, allowed)
        return proposal.value

    @validate("server_name")
    def _name_is_a_word(self, proposal: Bunch) -> str:
        if not re.fullmatch(r"[^\s/]{1,253}", proposal.value):
            unusable(proposal.trait, self, proposal.value, "it must be a name without spaces and slashes")
        return proposal.value

    @validate("default_gpus")
    def _gpus_can_be_given(self, proposal: Bunch) -> float:
        try:
            model.checked(model.Demand(gpus=proposal.value))
        except BadDemand:
            allowed = "allowed are 0, a fraction below 1, or a whole number"
            unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    @validate("simulated_user")
    def _only_simulated(self, proposal: Bunch) -> str:
        if proposal.value and self.devices != "simulated":
            allowed = "it is only for devices = 'simulated': a real session's owner is who started the server"
            unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value
