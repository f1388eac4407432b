"""The packing benchmark: what was run is written down, is not run again, and stands in one table per list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import packing
from jupyter_gpushare.simulator.workloads import openb

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{row},64000,262144,4,T4\n" for row in range(4))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,4000,1024,1,500\np1,8000,1024,1,1000\np2,4000,1024,1,300\n"
PUBLISHED = """workload,sc_policy,seed,100,130
openb_pod_list_tiny,01-Random,42,80.0,81.0
openb_pod_list_tiny,01-Random,43,82.0,83.0
openb_pod_list_tiny,06-FGD,42,90.0,70.0
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, text in ((openb.NODES, NODES), (openb.PODS.format("tiny"), PODS), (packing.PUBLISHED, PUBLISHED)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_list_of_the_folder_gets_a_table_and_no_run_is_made_twice(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--data", str(data), "--json", str(data / "runs.json"), "--seeds", "1-2", "--orders", "2"]
    asked += ["--policies", "fgd", "gpushare"]
    packing.main(asked)
    first = capsys.readouterr()
    assert len(first.err.splitlines()) == 2 * 2 * 2
    assert len(json.loads((data / "runs.json").read_text())) == 2 * 2 * 2
    assert "## openb-tiny, seeds 1..2; best published 90.00 / 82.00" in first.out
    assert "gpushare, 2 tie orders" in first.out
    packing.main(asked)
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")


def test_what_was_published_of_no_such_list_or_no_such_file_is_nothing(data: Path, tmp_path: Path) -> None:
    assert packing.published("other", data) == ""
    assert packing.published("tiny", tmp_path / "nowhere") == ""


def test_seeds_are_a_range_or_one() -> None:
    assert packing.seeds_of("42-44") == [42, 43, 44]
    assert packing.seeds_of("7") == [7]
