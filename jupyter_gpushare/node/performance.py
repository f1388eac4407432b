"""What known GPU models can do: the nominal numbers that no driver tells.

TFLOP/s are dense, at boost clocks. `tflops` is half precision as frameworks use it (tensor cores with single-precision
accumulation where there are any, else single precision); double and single precision are those of the ordinary cores,
TF32 and FP8 of the tensor cores; None where the chip has none worth naming, or its data sheet does not say. They are
meant to be those of NVIDIA's data sheets and architecture white papers. Compared so far, not with the data sheets
themselves but with pages that quote them (vendors' product pages, card databases) or with cores x clock: the figures of
half and single precision, bandwidth and power of B200, H200, H100 SXM, L40S, L40, L4, A100, A40, RTX 6000 Ada, RTX
A6000, A5000 and A4000, GeForce 4090, 4080 and 3090, T4, V100, P40 and P4. Of the others (H100 PCIe and NVL, GH200, H20,
A30, A10, A10G, Blackwell workstation cards, GB10, P100, K80 …), and of all slowdown temperatures and idle watts,
nothing was compared yet. What is measured wins over this table: power limit and slowdown temperature as NVML tells
them, and the memory bandwidth that follows from the clock and width of the memory that NVML tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


class Precisions(NamedTuple):
    """TFLOP/s by precision other than half."""

    double: float | None
    single: float | None
    tf32: float | None
    fp8: float | None


@dataclass(frozen=True)
class Performance:
    """One model. `model` is the name NVML gives it; `memory_gib` is nominal, before error correction takes its part."""

    model: str
    memory_gib: float
    precisions: Precisions
    tflops: float
    bandwidth_gb_s: float
    power_idle_w: float
    power_limit_w: float
    slowdown_c: float


# Of several variants of one model the first is what its short name means: "A100" is the 80 GB SXM card.
_TABLE = tuple(
    Performance(model, memory, Precisions(*others), *rest)
    for model, memory, others, *rest in (
        # model, memory GiB, TFLOP/s (double, single, TF32, FP8), TFLOP/s half, GB/s, idle W, limit W, slowdown C
        # Blackwell: "HGX B200" and "RTX PRO 6000 Blackwell" data sheets, "RTX Blackwell" white paper, "DGX Spark" page
        ("NVIDIA B200", 179, (37, 75, 1125, 4500), 2250, 8000, 140, 1000, 90),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, (None, 120, 252, 1008), 504, 1597, 35, 600, 92),
        ("NVIDIA GeForce RTX 5090", 32, (1.64, 104.8, 104.8, 419), 209.5, 1792, 20, 575, 90),
        ("NVIDIA GB10", 119, (None, None, None, None), 125, 273, 4, 140, 95),
        # Hopper: "H200" and "H100" data sheets, "H100 NVL" product brief, "GH200" data sheet
        ("NVIDIA H200", 140, (34, 67, 494.5, 1979), 989, 4800, 75, 700, 87),
        ("NVIDIA H200 NVL", 140, (30, 60, 417.5, 1671), 835, 4800, 70, 600, 87),
        ("NVIDIA H100 80GB HBM3", 80, (34, 67, 494.5, 1979), 989, 3350, 70, 700, 87),
        ("NVIDIA H100 PCIe", 80, (26, 51, 378, 1513), 756, 2039, 50, 350, 87),
        ("NVIDIA H100 NVL", 94, (30, 60, 417.5, 1671), 835, 3938, 60, 400, 87),
        ("NVIDIA GH200 480GB", 96, (34, 67, 494.5, 1979), 989, 4000, 75, 900, 87),
        ("NVIDIA H20", 96, (1, 44, 74, 296), 148, 4000, 70, 500, 87),
        # Ada: "L40S", "L40", "L4", "RTX 6000 Ada" data sheets, "Ada" white paper
        ("NVIDIA L40S", 48, (None, 91.6, 183, 733), 362, 864, 35, 350, 91),
        ("NVIDIA L40", 48, (None, 90.5, 90.5, 362), 181, 864, 35, 300, 91),
        ("NVIDIA L4", 24, (None, 30.3, 60, 242.5), 121, 300, 16, 72, 86),
        ("NVIDIA RTX 6000 Ada Generation", 48, (None, 91.1, 182.1, 728.5), 364, 960, 25, 300, 92),
        ("NVIDIA GeForce RTX 4090", 24, (1.29, 82.6, 82.6, 330.3), 165.2, 1008, 20, 450, 90),
        ("NVIDIA GeForce RTX 4080", 16, (0.76, 48.7, 48.7, 194.9), 97.5, 717, 15, 320, 90),
        # Ampere: "A100", "A30", "A40", "A10", "RTX A6000" data sheets, "GA102" white paper; A10G: AWS G5 page
        ("NVIDIA A100-SXM4-80GB", 80, (9.7, 19.5, 156, None), 312, 2039, 60, 400, 89),
        ("NVIDIA A100-SXM4-40GB", 40, (9.7, 19.5, 156, None), 312, 1555, 50, 400, 89),
        ("NVIDIA A100 80GB PCIe", 80, (9.7, 19.5, 156, None), 312, 1935, 45, 300, 89),
        ("NVIDIA A100-PCIE-40GB", 40, (9.7, 19.5, 156, None), 312, 1555, 35, 250, 89),
        ("NVIDIA A40", 48, (None, 37.4, 74.8, None), 149.7, 696, 30, 300, 95),
        ("NVIDIA A30", 24, (5.2, 10.3, 82, None), 165, 933, 30, 165, 90),
        ("NVIDIA A10", 24, (None, 31.2, 62.5, None), 125, 600, 16, 150, 95),
        ("NVIDIA A10G", 24, (None, 31.5, 35, None), 70, 600, 16, 300, 95),
        ("NVIDIA RTX A6000", 48, (None, 38.7, 77.4, None), 154.8, 768, 22, 300, 95),
        ("NVIDIA RTX A5000", 24, (None, 27.8, 55.6, None), 111.1, 768, 20, 230, 95),
        ("NVIDIA RTX A4000", 16, (None, 19.2, 38.3, None), 76.7, 448, 14, 140, 95),
        ("NVIDIA GeForce RTX 3090", 24, (None, 35.6, 35.6, None), 71, 936, 20, 350, 95),
        ("NVIDIA GeForce RTX 3080", 10, (None, 29.8, 29.8, None), 59.5, 760, 18, 320, 95),
        # Turing: "T4" data sheet, "Turing" white paper
        ("Tesla T4", 16, (None, 8.1, None, None), 65, 320, 10, 70, 93),
        ("NVIDIA GeForce RTX 2080 Ti", 11, (None, 13.4, None, None), 53.8, 616, 15, 250, 91),
        # Volta: "V100" and "V100S" data sheets
        ("Tesla V100-SXM2-16GB", 16, (7.8, 15.7, None, None), 125, 900, 40, 300, 87),
        ("Tesla V100-SXM2-32GB", 32, (7.8, 15.7, None, None), 125, 900, 40, 300, 87),
        ("Tesla V100-PCIE-16GB", 16, (7, 14, None, None), 112, 900, 25, 250, 87),
        ("Tesla V100-PCIE-32GB", 32, (7, 14, None, None), 112, 900, 25, 250, 87),
        ("Tesla V100S-PCIE-32GB", 32, (8.2, 16.4, None, None), 130, 1134, 25, 250, 87),
        # Pascal: "P100" data sheets (it has fast half precision); P40 and P4 compute in single precision
        ("Tesla P100-SXM2-16GB", 16, (5.3, 10.6, None, None), 21.2, 732, 30, 300, 82),
        ("Tesla P100-PCIE-16GB", 16, (4.7, 9.3, None, None), 18.7, 732, 25, 250, 82),
        ("Tesla P40", 24, (None, 11.8, None, None), 11.8, 347, 10, 250, 92),
        ("Tesla P4", 8, (None, 5.5, None, None), 5.5, 192, 7, 75, 91),
        ("Quadro P1000", 4, (None, 1.9, None, None), 1.9, 82, 4, 47, 98),
        # Kepler: "K80" board specification; each of the board's two devices, single precision
        ("Tesla K80", 12, (1.46, 4.37, None, None), 4.37, 240, 27, 149, 88),
    )
)

_BRANDS = frozenset({"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "RTX", "GRID", "GENERATION"})
_FORM = re.compile(r"SXM\d?|PCIE|NVL|HBM\w*|\d+GB|DGXS|FHHL|MIG|ME|\d+C?\.?\d*G\.\d+GB")
_SXM = {"NVIDIA H100 80GB HBM3": {"SXM", "SXM5"}}  # says its memory where others say their socket


def _tokens(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """What a name says of the chip, and what it says of its form (socket, memory, MIG slice)."""
    tokens = frozenset(re.findall(r"[A-Z0-9.]+", name.upper())) - _BRANDS
    form = frozenset(token for token in tokens if _FORM.fullmatch(token))
    return tokens - form, form


_KNOWN = tuple((*_tokens(row.model), row) for row in _TABLE)


def lookup(name: str) -> Performance | None:
    """The model a name means: NVML's full name or a short one such as ``A100`` or ``V100 32GB``; None for others.

    >>> lookup("A100").model
    'NVIDIA A100-SXM4-80GB'
    """
    chip, form = _tokens(name)
    rows = [(form_of_row | _SXM.get(row.model, set()), row) for known, form_of_row, row in _KNOWN if known == chip]
    if not rows:
        return None
    return max(rows, key=lambda candidate: len(candidate[0] & form))[1]


def names() -> tuple[str, ...]:
    """All known models."""
    return tuple(row.model for row in _TABLE)
