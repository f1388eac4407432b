"""Gives back GPU memory that frameworks only cache. They are used where they are loaded and never imported here."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import ModuleType


def release_caches() -> int | None:
    """Empties the caches of the frameworks in this process. Returns the bytes that came free, None where none can say.

    A framework that is half loaded or fails is passed over: trimming is a favour, never worth an error in a notebook.
    """
    gc.collect()  # what no variable holds any more is in no cache yet
    freed = [done for name, trim in _TRIMS.items() if (done := _tried(name, trim)) is not None]
    return sum(freed) if freed else None


def _tried(name: str, trim: Callable[[ModuleType], int | None]) -> int | None:
    module = sys.modules.get(name)
    if module is None:
        return None
    try:
        return trim(module)
    except (AttributeError, RuntimeError, ValueError):  # another version, no device, a context that is gone
        return None


def _torch(torch: ModuleType) -> int | None:
    if not torch.cuda.is_initialized():  # asking anything else would open the device
        return None
    before: int = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    return max(0, before - int(torch.cuda.memory_reserved()))


def _cupy(cupy: ModuleType) -> int | None:
    pool = cupy.get_default_memory_pool()
    before: int = pool.total_bytes()
    if before:
        pool.free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    return max(0, before - int(pool.total_bytes()))


def _jax(jax: ModuleType) -> None:
    jax.clear_caches()  # compiled programs and the buffers they keep; its arena says nothing of its size


def _tensorflow(tensorflow: ModuleType) -> None:
    tensorflow.keras.backend.clear_session()


_TRIMS: dict[str, Callable[[ModuleType], int | None]] = {
    "torch": _torch,
    "cupy": _cupy,
    "jax": _jax,
    "tensorflow": _tensorflow,
}
