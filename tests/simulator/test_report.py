"""Tables and pictures say what the runs say."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.simulator import plots, report
from jupyter_gpushare.simulator.metrics import metrics
from jupyter_gpushare.simulator.run import Run


def run(policy: str, seed: int = 42, **known: float) -> Run:
    return Run("notebooks", policy, "1x2xA100", seed, metrics(**known))


def cells(text: str) -> dict[str, list[str]]:
    """A table's rows by policy; parts are at least two blanks apart."""
    rows = [[part.strip() for part in line.split("  ") if part.strip()] for line in text.splitlines() if "  " in line]
    return {row[0]: row[1:] for row in rows}


def test_the_best_of_a_column_is_marked_whichever_way_is_better() -> None:
    found = cells(
        report.table(
            [
                run("gpushare", gpu_hours_held=4410.0, bound_at_once=0.98, parks=7),
                run("static", gpu_hours_held=42170.0, bound_at_once=0.90, parks=0),
            ]
        )
    )
    assert found["policy"] == ["gpu_hours_held", "bound_at_once", "parks"]
    assert found["gpushare"] == ["4,410*", "0.9800*", "7"]
    assert found["static"] == ["42,170", "0.9000", "0"]


def test_those_that_look_alike_at_the_top_are_all_marked() -> None:
    found = cells(
        report.table([run("a", jct_mean_s=100.00001), run("b", jct_mean_s=100.0), run("c", jct_mean_s=200.0)])
    )
    assert [found[policy][0] for policy in "abc"] == ["100*", "100*", "200"]


def test_what_is_not_known_is_a_dash_and_what_nobody_knows_is_left_out() -> None:
    found = cells(report.table([run("a", jct_mean_s=10.0), run("b", queue_mean_s=3.0)]))
    assert found["policy"] == ["jct_mean_s", "queue_mean_s"]
    assert (found["a"], found["b"]) == (["10", "–"], ["–", "3"])


def test_a_column_in_which_all_are_alike_is_left_out_but_nothing_lost_is_said() -> None:
    found = cells(
        report.table([run(p, gpu_hours_held=5.0, states_lost=0, parks=0, jain=x) for p, x in (("a", 1), ("b", 2))])
    )
    assert found["policy"] == ["states_lost"]


def test_several_seeds_give_a_mean_and_an_interval() -> None:
    runs = [run("a", seed, jct_mean_s=value) for seed, value in ((1, 10.0), (2, 12.0), (3, 14.0))]
    text = report.table(
        [*runs, run("b", 1, jct_mean_s=50.0), run("b", 2, jct_mean_s=50.0), run("b", 3, jct_mean_s=50.0)]
    )
    assert cells(text)["a"] == ["12.0 ± 5.0*"]
    assert cells(text)["b"] == ["50"]
    assert text.startswith("notebooks on 1x2xA100, seeds 1 to 3")
    assert "95 % interval" in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.95991, "0.9599"), (1.8512, "1.851"), (204248.3, "204,248"), (0.00001, "0.0000")]
)
def test_numbers_have_four_figures(value: float, text: str) -> None:
    assert report.number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.959, "%", "95.9 %"),
        (1.0, "%", "100 %"),
        (0.0, "%", "0 %"),
        (0.0001, "%", "< 0.1 %"),
        (1.85, "s", "1.85 s"),
        (148.0, "s", "2.47 min"),
        (204248.0, "s", "56.7 h"),
        (4410.0, "h", "4,410 h"),
        (46.0, "", "46"),
    ],
)
def test_values_in_pictures_are_as_people_say_them(value: float, unit: report.Unit, text: str) -> None:
    assert plots.value_text(value, unit) == text


COMPARED = [
    run(policy, seed, gpu_hours_held=held + seed, delay_p95_s=delay, bound_at_once=0.9, states_lost=0)
    for policy, held, delay in (("gpushare", 10.0, 0.0), ("static", 90.0, 200000.0), ("notebookos", 11.0, 1.9))
    for seed in (1, 2)
]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_runs_give_the_same_picture(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}.{suffix}" for name in ("a", "b")]
    for path in paths:
        plots.plot(COMPARED, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_picture_names_policies_and_values_and_leaves_out_what_tells_nothing(tmp_path: Path) -> None:
    plots.plot(COMPARED, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text()
    for text in ("gpushare", "notebookos", "Device-hours held", "55.6 h", "log scale", "Seeds 1 to 2"):
        assert text in drawn
    assert "Cells granted at once" not in drawn


def test_unknown_values_are_drawn_as_dashes(tmp_path: Path) -> None:
    runs = [run("recorded", 0, gpu_hours_held=5.0), run("gpushare", 0, gpu_hours_held=4.0, delay_p95_s=1.0)]
    plots.plot(runs, tmp_path / "a.svg")
    assert "–" in (tmp_path / "a.svg").read_text()


def test_the_frontier_holds_only_what_nobody_beats_in_both() -> None:
    assert plots.frontier([(2, 2), (1, 3), (3, 1), (3, 3), (2, 2.5)]) == [(1, 3), (2, 2), (3, 1)]


def test_objectives_are_drawn_with_what_was_published(tmp_path: Path) -> None:
    runs = [
        Run("shockwave-120", policy, "32xv100", 42, metrics(jct_mean_s=jct, ftf_worst=ftf))
        for policy, jct, ftf in (
            ("gpushare 1 : 0", 7000.0, 2.9),
            ("gpushare 1 : 1", 6800.0, 1.5),
            ("fifo", 9500.0, 5.1),
        )
    ]
    plots.plot_objectives(runs, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text()
    for text in ("1 : 0", "1 : 1", "fifo", "Shockwave", "AlloX", "as published"):
        assert text in drawn


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadDemand, match=r"pip install 'jupyter-gpushare\[simulate\]'"):
        plots.check(tmp_path / "a.png")


def test_an_interval_of_one_run_is_none() -> None:
    mean, half = report.by_policy([run("a", jct_mean_s=3.0)])["a"]["jct_mean_s"] or (0, 0)
    assert mean == 3.0
    assert math.isnan(half)
