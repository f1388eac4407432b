"""What admins set, checked: `c.GPUShare.…` and `c.Policy.…`, and the frozen numbers the core takes.

A value that is not usable raises TraitError with one line: the trait, the value, what is allowed.
"""

from .policy import Policy
from .share import GPUShare

__all__ = ["GPUShare", "Policy"]
