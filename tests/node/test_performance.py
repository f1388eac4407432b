"""The table of known models."""

from __future__ import annotations

import pytest

from jupyter_gpushare.node.performance import Precisions, lookup, names


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("A100", "NVIDIA A100-SXM4-80GB"),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb+me", "NVIDIA A100-SXM4-40GB"),
        ("V100", "Tesla V100-SXM2-16GB"),
        ("Tesla V100-DGXS-32GB", "Tesla V100-SXM2-32GB"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("H100 SXM5", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("H200", "NVIDIA H200"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("A10", "NVIDIA A10"),
        ("A10G", "NVIDIA A10G"),
    ],
)
def test_full_and_short_names_find_their_model(name, model):
    found = lookup(name)
    assert found is not None
    assert found.model == model


@pytest.mark.parametrize(
    "name", ["", "NVIDIA", "80GB", "A1000", "Quadro RTX 6000", "NVIDIA GeForce RTX 4090 Laptop GPU", "Radeon VII"]
)
def test_a_model_that_only_sounds_alike_is_unknown(name):
    assert lookup(name) is None


@pytest.mark.parametrize("name", names())
def test_every_model_finds_itself_and_its_numbers_are_plausible(name):
    found = lookup(name)
    assert found is not None
    assert found.model == name
    assert 1 < found.memory_gib < 300
    assert 1 < found.tflops < 5000
    assert 50 < found.bandwidth_gb_s < 10_000
    assert 0 < found.power_idle_w < found.power_limit_w / 3
    assert 80 <= found.slowdown_c <= 100


@pytest.mark.parametrize("name", names())
def test_precisions_are_ordered_as_chips_are_built(name):
    found = lookup(name)
    assert found is not None
    known = [*(value for value in found.precisions[:3] if value is not None), found.tflops, found.precisions.fp8]
    speeds = [value for value in known if value is not None]
    assert all(value > 0 for value in speeds)
    assert speeds == sorted(speeds)  # double ≤ single ≤ TF32 ≤ half ≤ FP8


def test_an_a100_is_as_its_data_sheet_says():
    found = lookup("A100")
    assert found is not None
    assert found.precisions == Precisions(double=9.7, single=19.5, tf32=156, fp8=None)
    assert (found.tflops, found.bandwidth_gb_s, found.power_idle_w, found.power_limit_w) == (312, 2039, 60, 400)
