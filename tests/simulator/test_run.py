"""`simulate`: what there is, what fits what, and that a seed gives the same answer every time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.cli import main
from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.simulator import catalogue, run
from jupyter_gpushare.simulator.metrics import METRICS
from jupyter_gpushare.simulator.run import Asked
from jupyter_gpushare.simulator.workloads import WORKLOADS

BURSTS = """session,user,submit_s,duration_s,gpus,memory_gib
a,ann,0,60,1,4
a,ann,600,60,1,4
b,bob,30,120,1,4
c,cem,40,30,0.5,2
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\nn1,96000,393216,4,V100M16\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,4000,8192,1,500,\np1,8000,16384,1,1000,\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-01 0{hour}:00:00,{1800 * (hour + 1)},{hour % 3 + 1},0,vc{hour % 2}\n" for hour in range(8)
)


def quiet(text: str) -> None:
    """Nobody listens."""


@pytest.fixture
def bursts(tmp_path: Path) -> str:
    (tmp_path / "bursts.csv").write_text(BURSTS)
    return f"sessions:{tmp_path / 'bursts.csv'}"


@pytest.fixture
def philly(tmp_path: Path) -> str:
    (tmp_path / "jobs.csv").write_text(PHILLY)
    return f"philly:{tmp_path / 'jobs.csv'}"


@pytest.fixture
def openb(tmp_path: Path) -> Asked:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return Asked(f"openb:{tmp_path / 'pods.csv'}", cluster=f"openb:{tmp_path / 'nodes.csv'}")


def test_every_policy_has_a_line_that_says_what_it_does() -> None:
    assert {engine: set(texts) for engine, texts in catalogue.TEXTS.items()} == {
        engine: set(known) for engine, known in catalogue.POLICIES.items()
    }


def test_the_list_names_everything_and_says_where_missing_files_come_from(tmp_path: Path) -> None:
    (tmp_path / "pollux-osdi21").mkdir()
    (tmp_path / "pollux-osdi21/philly.csv").write_text(PHILLY)
    lines = catalogue.as_text(tmp_path).splitlines()
    state = {line.split()[0]: line.split()[1] for line in lines if line.startswith("  ") and len(line.split()) > 1}
    assert set(WORKLOADS) <= set(state)
    assert (state["philly"], state["notebooks"], state["shockwave-120"]) == ("found", "generated", "missing")
    below = lines.index("  https://github.com/uw-mad-dash/shockwave")
    assert lines[below + 1].strip().startswith("shockwave/120_0.2")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked("nope"), "workload: 'nope' is not known; use one of openb-default"),
        (Asked("notebooks", ("fgd",)), "policy: 'fgd' does not fit notebooks; use one of gpushare"),
        (Asked("notebooks", ("nope",)), "policy: 'nope' is not known; use one of gpushare"),
        (Asked("philly", data=Path("/nowhere")), "needs pollux-osdi21/philly.csv, which is not in /nowhere; get it"),
        (Asked("render-farm", sessions=3), "sessions: render-farm has its own"),
        (Asked("notebooks", throughputs=Path("x")), "throughputs: notebooks has its own"),
        (Asked("notebooks", sessions=1, cluster="3xFoo"), "cluster: '3xFoo' is not usable"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line_that_names_what_to_use(asked: Asked, said: str) -> None:
    with pytest.raises(BadDemand) as refused:
        run.simulate(asked, quiet)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [("2xh100", "'2xh100' does not fit"), ("2xgpu", "needs 3 devices; 2xgpu is less"), ("0xgpu", "does not fit")],
)
def test_jobs_need_devices_that_they_can_run_on(philly: str, cluster: str, said: str) -> None:
    with pytest.raises(BadDemand, match=said):
        run.simulate(Asked(philly, ("fifo",), cluster=cluster), quiet)


def test_a_file_that_is_no_text_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for form in ("sessions", "philly", "jobs", "openb"):
        with pytest.raises(BadDemand):
            run.simulate(Asked(f"{form}:{tmp_path / 'binary'}", cluster=None), quiet)


def test_a_comparison_runs_every_policy_that_fits_with_every_seed(bursts: str) -> None:
    runs = run.simulate(Asked(bursts, seeds=(1, 2), cluster="1x2xA100"), quiet)
    assert [(each.policy, each.seed) for each in runs] == [
        (policy, seed) for policy in catalogue.POLICIES["sessions"] for seed in (1, 2)
    ]
    assert {each.cluster for each in runs} == {"1x2xA100"}
    assert all(set(each.metrics) == set(METRICS) for each in runs)


def test_jobs_run_on_other_devices_when_asked(philly: str) -> None:
    few, many = (run.simulate(Asked(philly, ("fifo",), cluster=name), quiet)[0] for name in ("3xgpu", "64xgpu"))
    assert (few.cluster, many.cluster) == ("3xgpu", "64xgpu")
    assert few.metrics["queue_mean_s"] > many.metrics["queue_mean_s"]


def test_the_same_seed_gives_the_same_json(bursts: str, philly: str, openb: Asked) -> None:
    farm = Asked("notebooks", ("gpushare",), (3,), cluster="1x2xA100", sessions=4)
    for asked in (farm, Asked(bursts, ("gpushare",)), Asked(philly, ("gpushare", "fifo")), openb):
        first, again = (run.as_json(run.simulate(asked, quiet)) for _ in range(2))
        assert first == again


def test_one_run_is_an_object_and_several_are_a_list_of_them(bursts: str) -> None:
    one = json.loads(run.as_json(run.simulate(Asked(bursts, ("static",), cluster="1x2xA100"), quiet)))
    assert list(one) == ["workload", "policy", "cluster", "seed", "metrics"]
    assert one["metrics"]["allocation_100"] is None
    assert one["metrics"]["gpu_hours_used"] > 0
    assert len(json.loads(run.as_json(run.simulate(Asked(bursts, ("static", "gpushare")), quiet)))) == 2


def test_weights_are_weighed_on_jobs_only(philly: str, bursts: str) -> None:
    runs = run.objectives(Asked(philly, ("fifo",), cluster="3xgpu"), quiet)
    assert [each.policy for each in runs] == [
        *(f"gpushare {completion:g} : {fairness:g}" for completion, fairness in run.OBJECTIVES),
        "fifo",
    ]
    with pytest.raises(BadDemand, match="shockwave-120"):
        run.objectives(Asked(bursts), quiet)


def test_progress_is_told_of_runs_that_take_long_only(bursts: str) -> None:
    said: list[str] = []
    run.simulate(Asked(bursts, ("static",)), said.append)
    assert said == []


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_real_command_writes_json_and_a_picture(bursts: str, tmp_path: Path) -> None:
    command = ["simulate", "compare", "--policy", "gpushare,static", "--cluster", "1x1xA100", "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpushare.cli", *command, "--workload", bursts, "--plot", tmp_path / "a.svg"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [each["policy"] for each in json.loads(done.stdout)] == ["gpushare", "static"]
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["simulate"], "simulate: workload: none is named"),
        (["simulate", "--workload", "notebooks", "--policy", "static,gpushare"], "use simulate compare"),
        (["simulate", "--workload", "notebooks", "--plot", "a.pdf"], "must end in .png or .svg"),
        (["simulate", "--workload", "notebooks", "--plot", "/nowhere/a.png"], "there is no folder /nowhere"),
        (["simulate", "--workload", "notebooks", "--json", "/nowhere/a"], "json: '/nowhere/a' is not usable"),
        (["replay", "--policy", "fgd"], "policy: 'fgd' does not fit sessions"),
        (["replay", "--cluster", "many"], "cluster: 'many' is not usable"),
    ],
)
def test_what_cannot_be_done_in_the_end_is_refused_at_once(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("seeds", ["9-1", "x", "1,,2", "-", "1-99999"])
def test_seeds_that_are_none_are_bad_usage(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--workload", "notebooks", f"--seeds={seeds}"])
    assert ended.value.code == 2
    assert "use 42, 1,2,5 or 42-51" in capsys.readouterr().err


def test_the_figures_of_one_run_are_printed_with_what_they_are(bursts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", bursts, "--policy", "static", "--cluster", "1x2xA100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{bursts} on 1x2xA100 under static, seed 42"
    assert any(line.split()[:2] == ["states_lost", "0"] and "state was lost" in line for line in lines)
    assert not any("allocation_100" in line for line in lines)
