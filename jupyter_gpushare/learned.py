"""Loads an admin's function that chooses the weights (`c.Policy.learned`), and keeps its faults from stopping anything.

The function takes a `core.objectives.Features` and returns the weights it wants changed, by name.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from .core.policy import Chooser, Weights
from .errors import BadDemand

if TYPE_CHECKING:
    from .core.objectives import Features

log = logging.getLogger(__name__)


class Learned:
    """An admin's function by its name, ``module:function``. Raises BadDemand where there is no such function."""

    def __init__(self, name: str) -> None:
        module, _, function = name.partition(":")
        try:
            found: object = importlib.import_module(module)
            for part in function.split("."):
                found = getattr(found, part)
        except Exception as error:  # an admin's module may fail in any way when it is loaded
            raise BadDemand(f"it cannot be loaded: {type(error).__name__}: {error}") from error
        if not callable(found):
            raise BadDemand("it must name a function, as module:function")
        self.name = name
        self._function: Callable[[Features], Mapping[str, float]] = found
        self._failing = False

    def over(self, weights: Weights) -> Chooser:
        """The function as the core calls it; where it fails, and for what it does not name, these weights hold."""
        return partial(self._chosen, weights)

    def _chosen(self, weights: Weights, features: Features) -> Weights:
        try:
            chosen = replace(weights, **{name: float(value) for name, value in self._function(features).items()})
        except Exception:  # whatever an admin's function does, decisions go on
            if not self._failing:
                log.exception("%s chose no usable weights; those of the configuration hold until it does", self.name)
            self._failing = True
            return weights
        self._failing = False
        return chosen
