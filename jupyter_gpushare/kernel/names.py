"""What sharing modes, terms of the fitness and states are called: the words of the panel."""

from __future__ import annotations

from .words import __


def honest(mode: str) -> str:
    """What a share means there; empty where that is not known."""
    return {
        "timeslice": __("time-sliced: a target, not a wall"),
        "mps": __("MPS: a ceiling"),
        "mig": __("MIG: a slice of its own"),
        "exclusive": __("all yours"),
        "mps weakly": __("MPS: a target, as somebody computes beside it"),
        "exclusive weakly": __("all yours, though others are not shut out"),
    }.get(mode, "")


def term_name(name: str) -> str:
    return {
        "compute": __("Free compute"),
        "data": __("Free bandwidth"),
        "fragmentation": __("Leaves gaps"),
        "locality": __("Close to data"),
        "thermal": __("Temperature"),
        "energy": __("Energy"),
        "stability": __("Steadiness"),
    }.get(name, name)


def look_name(look: str) -> str:
    """A state in a word or two."""
    return {
        "waiting": __("In line"),
        "bound": __("Ready"),
        "active": __("Computing"),
        "idle": __("Idle"),
        "parking": __("Being parked"),
        "parked": __("Parked"),
        "resuming": __("Coming back"),
        "none": __("No GPU"),
        "lost": __("Lost"),
        "dead": __("Ended"),
        "refused": __("Not granted"),
        "warned": __("Warned"),
    }.get(look, look)
