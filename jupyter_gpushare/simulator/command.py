"""`jupyter gpushare simulate` and `replay`: from parsed options to the text that is printed, and the files asked for.

Whatever cannot be done in the end is refused before the first run.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import BadDemand
from . import catalogue, plots, report, run
from .run import Asked, Run, Say

Draw = Callable[[Sequence[Run], Path], None]
ACTS: dict[str | None, tuple[Callable[[Asked, Say], list[Run]], Draw]] = {
    None: (run.simulate, plots.plot),
    "compare": (run.simulate, plots.plot),
    "objectives": (run.objectives, plots.plot_objectives),
}


def simulate(options: Namespace, say: Say) -> str:
    """Runs what is asked for. Raises BadDemand naming the option that is not usable."""
    if options.list:
        return catalogue.as_text(options.data)
    if not options.workload:
        raise BadDemand("workload: none is named; use --workload with one of those that simulate --list shows.")
    policies = options.policy or (() if options.act else ("gpushare",))
    if not options.act and len(policies) > 1:
        raise BadDemand(f"policy: {', '.join(policies)} are several; use simulate compare.")
    asked = Asked(
        workload=options.workload,
        policies=policies,
        seeds=options.seeds or run.SEEDS,
        cluster=options.cluster,
        data=options.data,
        throughputs=options.throughputs,
        sessions=options.sessions,
    )
    _check(options)
    act, draw = ACTS[options.act]
    runs = act(asked, say)
    return _delivered(options, runs, report.as_text(runs), draw)


def replay(options: Namespace, say: Say) -> str:
    """Runs a ledger's history. Raises BadDemand naming the option that is not usable."""
    from . import replay as past  # here: the database library takes a while to load

    policies = options.policy or ("gpushare",)
    run.check_sessions(policies, options.cluster)
    _check(options)
    known = past.read(options.ledger)
    if options.save:
        past.save(known.workload, options.save)
    runs = [past.recorded(known), *run.replayed(known.workload, policies, options.cluster, say)]
    return _delivered(options, runs, f"{past.as_text(known)}\n\n{report.table(runs)}", plots.plot)


def _check(options: Namespace) -> None:
    if options.plot:
        plots.check(options.plot)
    if options.json not in ("", "-") and not Path(options.json).absolute().parent.is_dir():
        raise BadDemand(f"json: {options.json!r} is not usable; there is no folder {Path(options.json).parent}.")


def _delivered(options: Namespace, runs: list[Run], text: str, draw: Draw) -> str:
    """What is printed, once the files are written."""
    if options.plot:
        draw(runs, options.plot)
    if options.json == "-":
        return run.as_json(runs)
    if options.json:
        try:
            Path(options.json).write_text(run.as_json(runs) + "\n", encoding="utf-8")
        except OSError as error:
            raise BadDemand(f"json: {options.json!r} cannot be written ({error.strerror}).") from None
    return text
