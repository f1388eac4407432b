"""Caches are emptied where a framework is loaded, and nothing is imported for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpushare.kernel.release import release_caches

NAMES = ("torch", "cupy", "jax", "tensorflow")


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def torch(initialized: bool = True) -> Any:
    reserved = [6 << 30]
    cuda = SimpleNamespace(
        is_initialized=lambda: initialized,
        memory_reserved=lambda: reserved[0],
        empty_cache=lambda: reserved.__setitem__(0, 1 << 30),
    )
    return SimpleNamespace(cuda=cuda)


def test_without_frameworks_nothing_is_known_and_nothing_imported() -> None:
    assert release_caches() is None
    assert not set(NAMES) & set(sys.modules)


def test_the_bytes_that_came_free_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [2 << 30]
    pool = SimpleNamespace(total_bytes=lambda: held[0], free_all_blocks=lambda: held.__setitem__(0, 0))
    pinned = SimpleNamespace(free_all_blocks=lambda: None)
    cupy = SimpleNamespace(get_default_memory_pool=lambda: pool, get_default_pinned_memory_pool=lambda: pinned)
    monkeypatch.setitem(sys.modules, "torch", torch())
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert release_caches() == 7 << 30


def test_a_framework_that_has_not_started_cuda_is_not_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(initialized=False))
    assert release_caches() is None


def test_jax_says_nothing_of_bytes_and_that_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[bool] = []
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(clear_caches=lambda: cleared.append(True)))
    assert release_caches() is None
    assert cleared == [True]


def test_a_framework_that_fails_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(clear_caches=broken))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())  # half loaded
    monkeypatch.setitem(sys.modules, "torch", torch())
    assert release_caches() == 5 << 30
