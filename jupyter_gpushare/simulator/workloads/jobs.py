"""Workloads of jobs: the traces of Gavel and Shockwave with their tables of throughputs, and Philly's job list.

Formats: `jobs:FILE.trace` (tab separated; Gavel's ten columns or Shockwave's twelve) with a JSON table of throughputs;
`philly:JOBS.csv` with columns timestamp, duration, num_gpus, gpu_time, cluster.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import random
from datetime import datetime
from pathlib import Path

import numpy as np

from ...errors import BadDemand
from ..jobs import Jobs, Speeds, Workload
from .batch_growth import EPOCH_SAMPLES, batches, profiled_batches

KINDS = ("v100", "p100", "k80")
REFERENCE = KINDS.index("v100")  # durations are counted on it
SHOCKWAVE_TRACE = "shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"
SHOCKWAVE_SPEEDS = "shockwave/tacc_throughputs.json"
GAVEL_SPEEDS = "gavel/simulation_throughputs.json"
GAVEL_JOBS = 8000  # more than ever arrive before the measured ones have ended, at the loads that are reported
GAVEL_WINDOW = (4000, 5000)
GAVEL_ROUND_S = 360.0
SHOCKWAVE_ROUND_S, SHOCKWAVE_RESTART_S = 120.0, 20.0
PHILLY_JOBS = "pollux-osdi21/philly.csv"
PHILLY_DEVICES = 512  # the list is a part of that cluster's jobs; on average they need 374

Type = tuple[str, int]  # model with batch size, devices
Table = dict[str, dict[Type, dict[str, object]]]


def shockwave_120(data: Path, seed: int = 0) -> Workload:
    """The 120 jobs on 32 V100 of Shockwave's canonical run. Nothing in it is drawn, so the seed changes nothing."""
    return from_trace(data / SHOCKWAVE_TRACE, data / SHOCKWAVE_SPEEDS, capacity=(32, 0, 0))


def gavel_single(data: Path, seed: int = 0, jobs_per_hour: float = 5.2, jobs: int = GAVEL_JOBS) -> Workload:
    """Gavel's continuous-single: one-device jobs that keep coming to 36 V100, 36 P100 and 36 K80.

    Drawn as the authors draw, from the same generators and seeds, so the jobs of a seed are theirs: 80 % of the
    durations on a V100 are 60 x 10^U(1.5, 3) s, the others 60 x 10^U(3, 4) s; models are equally likely.
    """
    table = read_throughputs(data / GAVEL_SPEEDS)
    models = gavel_models()
    draw, wait = random.Random(seed + 2), random.Random(seed + 3)
    arrival_s, types, work, alone_s = [0.0], [], [], []
    for _ in range(jobs):
        draw.uniform(0, 1)  # the number of devices, which continuous-single draws and does not use
        long = draw.random() >= 0.8
        duration_s = 60 * 10 ** (draw.uniform(3, 4) if long else draw.uniform(1.5, 3))
        model = draw.choice(models)
        types.append((model, 1))
        work.append(duration_s * float(table["v100"][model, 1]["null"]))  # type: ignore[arg-type]
        alone_s.append(duration_s)
        arrival_s.append(arrival_s[-1] - math.log(1.0 - wait.random()) * 3600.0 / jobs_per_hour)
    names = sorted(set(types))
    return Workload(
        jobs=Jobs(
            name=tuple(str(j) for j in range(jobs)),
            arrival_s=np.array(arrival_s[:jobs]),
            gpus=np.ones(jobs, np.int64),
            work=np.array(work),
            stage_at=np.zeros((jobs, 1)),
            stage_type=np.array([[names.index(kind)] for kind in types]),
            alone_s=np.array(alone_s),
        ),
        speeds=_speeds(table, names, np.ones(len(names))),
        capacity=np.array([36, 36, 36]),
        round_s=GAVEL_ROUND_S,
        restart_s=0.0,
        window=GAVEL_WINDOW,
    )


def gavel_models() -> list[str]:
    """Names of the job types in Gavel's table, in its order: a seed draws by position."""
    sizes = {
        "ResNet-18": (16, 32, 64, 128, 256),
        "ResNet-50": (16, 32, 64, 128),
        "Transformer": (16, 32, 64, 128, 256),
        "LM": (5, 10, 20, 40, 80),
        "Recommendation": (512, 1024, 2048, 4096, 8192),
    }
    return [f"{model} (batch size {size})" for model, those in sizes.items() for size in those] + ["A3C", "CycleGAN"]


def from_trace(
    trace: Path,
    throughputs: Path,
    *,
    capacity: tuple[int, ...] = (32, 0, 0),
    round_s: float = SHOCKWAVE_ROUND_S,
    restart_s: float = SHOCKWAVE_RESTART_S,
) -> Workload:
    """The jobs of a trace file; work is counted in epochs where the file has a mode column, in steps otherwise.

    Raises
    ------
    BadDemand
        A line, or a job type that the table of throughputs does not have; the message names file, line and field.
    """
    table = read_throughputs(throughputs)
    rows = [_trace_row(trace, at, line) for at, line in enumerate(trace.read_text().splitlines(), 1) if line.strip()]
    rows.sort(key=lambda row: float(row["arrival"]))
    types: dict[Type, int] = {}
    steps_per_unit: list[float] = []
    stages, work, alone_s = [], [], []
    for row in rows:
        model, devices, steps = row["type"], int(row["devices"]), float(row["steps"])
        try:
            own, profile, unit = _stages(table, model, devices, steps, row["mode"])
        except KeyError as missing:
            raise BadDemand(f"{trace}: line {row['line']}: {missing} has no throughput in {throughputs}.") from None
        for _, kind, per_unit in own:
            if (kind, devices) not in types:
                types[kind, devices] = len(types)
                steps_per_unit.append(per_unit)
        stages.append([(start, types[kind, devices]) for start, kind, _ in own])
        work.append(steps / unit)
        alone_s.append(profile)
    depth = max(len(those) for those in stages)
    stage_at, stage_type = np.full((len(rows), depth), np.inf), np.zeros((len(rows), depth), np.int64)
    for j, those in enumerate(stages):
        stage_at[j, : len(those)], stage_type[j, : len(those)] = zip(*those, strict=True)
    return Workload(
        jobs=Jobs(
            name=tuple(f"{trace.stem}-{row['line']}" for row in rows),
            arrival_s=np.array([float(row["arrival"]) for row in rows]),
            gpus=np.array([int(row["devices"]) for row in rows]),
            work=np.array(work),
            stage_at=stage_at,
            stage_type=stage_type,
            alone_s=np.array(alone_s),
        ),
        speeds=_speeds(table, list(types), np.array(steps_per_unit)),
        capacity=np.array(capacity),
        round_s=round_s,
        restart_s=restart_s,
        window=(0, len(rows)),
        fair_among=len(rows),
    )


def philly(jobs: Path, *, devices: int = PHILLY_DEVICES, limit: int | None = None) -> Workload:
    """Philly's jobs with their recorded durations, on one kind of device, all virtual clusters together.

    Jobs that ask for more devices than there are, or ran for no time, are left out.

    Raises
    ------
    BadDemand
        A row that cannot be read; the message names file, line and field.
    """
    seen = []
    with jobs.open(newline="") as lines:
        for at, row in enumerate(csv.DictReader(lines), 2):
            try:
                when = datetime.fromisoformat(row["timestamp"])
                seen.append((when, float(row["duration"]), int(row["num_gpus"]), row["cluster"]))
            except (KeyError, TypeError, ValueError) as wrong:
                raise BadDemand(f"{jobs}: line {at}: {wrong}.") from None
    seen = sorted(row for row in seen if row[1] > 0 and 0 < row[2] <= devices)[:limit]
    if not seen:
        raise BadDemand(f"{jobs}: no job in it ran.")
    start, total = seen[0][0], len(seen)
    duration_s = np.array([row[1] for row in seen])
    return Workload(
        jobs=Jobs(
            name=tuple(f"{row[3]}-{at}" for at, row in enumerate(seen)),
            arrival_s=np.array([(row[0] - start).total_seconds() for row in seen]),
            gpus=np.array([row[2] for row in seen]),
            work=duration_s,
            stage_at=np.zeros((total, 1)),
            stage_type=np.zeros((total, 1), np.int64),
            alone_s=duration_s,
        ),
        speeds=Speeds(kinds=("gpu",), alone=np.ones((1, 1)), steps=np.ones(1)),
        capacity=np.array([devices]),
        round_s=GAVEL_ROUND_S,
        restart_s=SHOCKWAVE_RESTART_S,
        window=(0, total),
    )


def load(name: str, data: Path, seed: int = 0, throughputs: Path | None = None) -> Workload:
    """The workload of a name, of `jobs:FILE.trace` or of `philly:JOBS.csv`.

    Raises
    ------
    BadDemand
        There is no such file, or it cannot be used; the message names file, line and field.
    """
    form, _, file = name.partition(":")
    try:
        if form == "philly":
            return philly(Path(file) if file else data / PHILLY_JOBS)
        if form == "jobs":
            return from_trace(Path(file), throughputs or data / SHOCKWAVE_SPEEDS)
        return {"shockwave-120": shockwave_120, "gavel-single": gavel_single}[form](data, seed)
    except OSError as wrong:
        raise BadDemand(f"{wrong.filename}: {wrong.strerror}. Where to get the traces stands in the docs.") from None


def read_throughputs(file: Path) -> Table:
    """kind of device -> (model, devices) -> "null" or the other job's type, as text -> steps per second.

    Raises
    ------
    BadDemand
        The file is not such a table.
    """
    try:
        raw = json.loads(file.read_text())
        return {kind: {ast.literal_eval(key): row for key, row in raw[kind].items()} for kind in KINDS}
    except (KeyError, ValueError, SyntaxError, AttributeError) as wrong:
        raise BadDemand(f"{file}: not a table of throughputs for {', '.join(KINDS)}: {wrong}.") from None


def _trace_row(trace: Path, line: int, text: str) -> dict[str, str]:
    fields = text.split("\t")
    if len(fields) not in (10, 12):
        raise BadDemand(f"{trace}: line {line}: {len(fields)} columns; a trace has 10, or 12 with mode and duration.")
    mode = fields[7] if len(fields) == 12 else ""
    row = {"type": fields[0], "steps": fields[5], "devices": fields[6], "mode": mode, "arrival": fields[-1]}
    for name in ("steps", "devices", "arrival"):
        try:
            float(row[name])
        except ValueError:
            raise BadDemand(f"{trace}: line {line}: {name} is {row[name]!r}, not a number.") from None
    return row | {"line": str(line)}


def _stages(
    table: Table, name: str, devices: int, steps: float, mode: str
) -> tuple[list[tuple[float, str, float]], float, float]:
    """[(start, type, steps per unit of work)], run time alone in seconds, steps per unit at the start.

    Raises KeyError for a type that is not in the table.
    """

    def speed(kind: str) -> float:
        return float(table[KINDS[REFERENCE]][kind, devices]["null"])  # type: ignore[arg-type]

    if not mode:
        return [(0.0, name, 1.0)], steps / speed(name), 1.0
    model, size = name[: name.index(" ")], int(name[name.rindex(" ") + 1 : -1])
    samples = EPOCH_SAMPLES[model]
    epochs = math.ceil(steps / math.ceil(samples / size))

    def sized(batch: int) -> str:
        return f"{model} (batch size {batch})"

    alone_s = sum(samples / b / speed(sized(b)) for b in profiled_batches(mode, model, size, devices, epochs))
    own = batches(mode, model, size, devices, epochs)
    starts = [at for at in range(epochs) if at == 0 or own[at] != own[at - 1]]
    stages = [(float(at), sized(own[at]), float(math.ceil(samples / own[at]))) for at in starts]
    return stages, alone_s, float(math.ceil(samples / size))


def _speeds(table: Table, types: list[Type], steps_per_unit: np.ndarray) -> Speeds:
    alone = np.array([[float(table[kind][key]["null"]) for kind in KINDS] for key in types])  # type: ignore[arg-type]
    beside = np.zeros((len(types), len(types), len(KINDS)))
    for a, key in enumerate(types):
        for b, other in enumerate(types):
            for k, kind in enumerate(KINDS):
                both = table[kind][key].get(str(other))
                beside[a, b, k] = both[0] if both else 0.0  # type: ignore[index]
    fits = (beside > 0) & (beside.transpose(1, 0, 2) > 0)  # a pair runs only if both make progress
    per_unit = steps_per_unit[:, None]
    beside = np.where(fits, beside, 0.0) / per_unit[:, :, None]
    return Speeds(kinds=KINDS, alone=alone / per_unit, steps=steps_per_unit, beside=beside)
