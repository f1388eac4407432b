"""The mask and the hints a kernel finds, and the folder its gate lies in."""

from __future__ import annotations

import fcntl
import os

import pytest

from jupyter_gpushare.model import Binding
from jupyter_gpushare.server.environment import kernel_environment, mask_of
from jupyter_gpushare.server.gate import Gate, Gates

MIG, GPU = "MIG-1c5b", "GPU-7f00"


@pytest.mark.parametrize(
    ("devices", "mask_format", "mask"),
    [
        ((GPU,), "uuid", GPU),
        ((GPU,), "index", "3"),
        ((MIG,), "index", MIG),
        ((GPU, MIG), "index", f"{GPU},{MIG}"),
        ((), "index", ""),
    ],
)
def test_a_mask_by_index_still_names_mig_instances_by_uuid(devices, mask_format, mask):
    binding = Binding(session="a", state="bound", devices=devices, indices=(3,) * len(devices))
    assert mask_of(binding, mask_format) == mask


@pytest.mark.parametrize(
    ("inherited", "hints"),
    [
        ({}, {"TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE"}),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".4"}, {"TF_FORCE_GPU_ALLOW_GROWTH"}),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, {"TF_FORCE_GPU_ALLOW_GROWTH"}),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, {"XLA_PYTHON_CLIENT_PREALLOCATE"}),
    ],
)
def test_a_hint_stays_away_where_the_user_decided(inherited, hints):
    found = kernel_environment(inherited, Binding(session="a", state="bound", devices=(GPU,)))
    assert {name for name in found if name.startswith(("TF_", "XLA_"))} == hints


def test_a_kernel_that_has_its_devices_to_itself_finds_no_hints():
    """C12"""
    found = kernel_environment({}, Binding(session="a", state="bound", devices=(GPU,), shared=False))
    assert not [name for name in found if name.startswith(("TF_", "XLA_"))]


def test_the_next_server_removes_the_gates_of_a_killed_one_and_none_of_a_living_one(tmp_path):
    living = Gates(tmp_path)
    Gate(living.path, "a")
    killed = tmp_path / "gates-killed"
    killed.mkdir()
    (killed / "gate-b").write_bytes(b"o\0")

    own = Gates(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {living.path.name, own.path.name}
    assert (living.path / "gate-a").exists()
    own.close()
    living.close()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_ends_meanwhile_keeps_no_other_from_starting(tmp_path):
    (tmp_path / "gates-ending").symlink_to(tmp_path / "gone")  # listed, but no more there when it is opened
    own = Gates(tmp_path)
    assert own.path.is_dir()
    own.close()


def test_a_gates_folder_is_locked_only_while_its_server_lives(tmp_path):
    gates = Gates(tmp_path)
    seen = os.open(gates.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
    gates.close()
    fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(seen)
