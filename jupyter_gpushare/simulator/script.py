"""What the sessions of a workload will ask for and do: known to the engine, never to a policy."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.state import Floats
from ..model import Demand


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """One session.

    Attributes
    ----------
    id, user, demand : as the product would see them
    opens_s : when its kernel starts
    closes_s : when its kernel is ended by its user, never before its last cell is done; a job closes when that is done
    submit_s : (K,) ascending, when each cell is submitted, whatever became of those before it; they run one by one
    work_s : (K,) seconds of each cell alone on the reference device
    memory : bytes on each of its devices from its first cell on
    compute, bandwidth : fractions of the reference device's time and memory bandwidth that its cells use alone
    uses : how many of the devices it asks for its cells really use
    job : it is one task; its completion is measured, not its cells' delays
    """

    id: str
    user: str
    demand: Demand
    opens_s: float
    closes_s: float
    submit_s: Floats
    work_s: Floats
    memory: float
    compute: float = 1.0
    bandwidth: float = 0.3
    uses: int = 1
    job: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Sessions and for how long they are watched.

    Attributes
    ----------
    cluster : the cluster it is meant for, in the words of `cluster.py`
    until_s : end of the simulation; what waits or runs then is counted as far as it came
    """

    name: str
    cluster: str
    until_s: float
    scripts: tuple[Script, ...]
