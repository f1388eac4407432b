"""Generated months have the statistics of the month they were fitted to, within what months differ among themselves."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.simulator.script import Script
from jupyter_gpushare.simulator.workloads import notebooks
from jupyter_gpushare.simulator.workloads.sessions import load as load_bursts

TRAINED = 341  # sessions that trained in the month that was fitted
SEEDS = range(5)


@pytest.fixture(scope="module")
def months() -> list[list[Script]]:
    """Sessions that train, as many as in the fitted month, with its GPUs."""
    found = []
    for seed in SEEDS:
        scripts = notebooks.load(seed=seed, sessions=1250, mix="adobe").scripts
        found.append([script for script in scripts if script.submit_s.size][:TRAINED])
    return found


def median(values: list[float]) -> float:
    return float(np.median(values))


def test_a_month_has_as_many_training_cells(months: list[list[Script]]) -> None:
    events = median([sum(script.submit_s.size for script in month) for month in months])
    assert 80_000 <= events <= 130_000  # 100,131 in the trace


@pytest.mark.parametrize(("q", "trace_min", "within"), [(50, 2, 1.0), (75, 6, 1.5), (90, 20, 6), (95, 40, 15)])
def test_cells_take_as_long(months: list[list[Script]], q: float, trace_min: float, within: float) -> None:
    found = median([float(np.percentile(np.concatenate([s.work_s for s in month]), q)) / 60 for month in months])
    assert found == pytest.approx(trace_min, abs=within)


@pytest.mark.parametrize(("q", "trace_min", "within"), [(50, 1, 0.6), (75, 3, 1.0), (90, 7, 2.5)])
def test_gaps_are_as_long(months: list[list[Script]], q: float, trace_min: float, within: float) -> None:
    found = []
    for month in months:
        gaps = [script.submit_s[1:] - (script.submit_s + script.work_s)[:-1] for script in month]
        found.append(float(np.percentile(np.concatenate(gaps), q)) / 60)
    assert median(found) == pytest.approx(trace_min, abs=within)


@pytest.mark.parametrize(("q", "trace_h", "within"), [(25, 73, 60), (50, 366, 80), (75, 634, 120)])
def test_sessions_span_as_much(months: list[list[Script]], q: float, trace_h: float, within: float) -> None:
    spans = [[(s.submit_s[-1] + s.work_s[-1] - s.submit_s[0]) / 3600 for s in month] for month in months]
    assert median([float(np.percentile(each, q)) for each in spans]) == pytest.approx(trace_h, abs=within)


def test_reserved_gpus_are_idle_for_three_quarters_of_the_time(months: list[list[Script]]) -> None:
    shares = []
    for month in months:
        used = sum(float(s.work_s.sum()) * s.demand.gpus for s in month)
        held = sum(float(s.submit_s[-1] + s.work_s[-1] - s.submit_s[0]) * s.demand.gpus for s in month)
        shares.append(used / held)
    assert median(shares) == pytest.approx(0.276, abs=0.04)


def test_the_hubs_mix_asks_for_less_than_a_device_in_two_of_five_sessions() -> None:
    asks = [script.demand.gpus for script in notebooks.load(seed=0, sessions=3000).scripts]
    assert np.mean([gpus < 1 for gpus in asks]) == pytest.approx(0.44, abs=0.03)


def test_recorded_bursts_become_sessions(tmp_path) -> None:
    file = tmp_path / "bursts.csv"
    file.write_text("session,user,submit_s,duration_s,gpus,memory_gib\nn1,ann,5,10,0.5,4\nn1,ann,40,3,0.5,6\n")
    (script,) = load_bursts(f"sessions:{file}").scripts
    assert (script.user, script.demand.gpus, script.demand.memory) == ("ann", 0.5, 6 * 2**30)
    assert script.submit_s.tolist() == [5.0, 40.0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("session,user\n", "submit_s"),
        ("session,user,submit_s,duration_s,gpus,memory_gib\nn,a,x,1,1,1\n", "row 2: submit_s 'x'"),
        ("session,user,submit_s,duration_s,gpus,memory_gib\nn,a,0,1,1.5,1\n", "gpus"),
        ("session,user,submit_s,duration_s,gpus,memory_gib\n", "no bursts"),
    ],
)
def test_what_cannot_be_used_of_a_file_is_named(tmp_path, text: str, names: str) -> None:
    file = tmp_path / "bursts.csv"
    file.write_text(text)
    with pytest.raises(BadDemand, match=names):
        load_bursts(str(file))
