"""How the batch size of a training job grows while it runs, as the Shockwave (NSDI'23) traces have it.

Two published rules are in the traces' mode column. GNS (gradient noise scale) doubles the batch at epochs that depend
on model, first batch size and number of devices. Accordion uses the largest batch outside of critical phases of
training. The epochs are the ones in the published simulator (uw-mad-dash/shockwave, MIT).
"""

from __future__ import annotations

EPOCH_SAMPLES = {  # samples in an epoch of the model's data set
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
    "CycleGAN": 6_287,
    "A3C": 4,
}
LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "Transformer": 128, "LM": 80, "Recommendation": 8192}
ACCORDION = ("ResNet-18", "ResNet-50", "LM", "Recommendation")  # the others keep their batch under this rule
ALWAYS_CRITICAL = (
    0.3  # of a job's epochs, in the authors' profile of it; the simulated job itself does not wait so long
)

# (model, first batch size, devices) -> epochs at which the batch doubles
DOUBLINGS: dict[tuple[str, int, int], tuple[int, ...]] = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71),
    ("ResNet-18", 32, 1): (21, 31, 51),
    ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 128, 1): (11,),
    ("ResNet-18", 16, 2): (21, 31, 91, 111),
    ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 64, 2): (21, 41),
    ("ResNet-18", 128, 2): (41,),
    ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 4): (21, 31, 61),
    ("ResNet-18", 64, 4): (11, 61),
    ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 64, 1): (101,),
    ("ResNet-50", 32, 2): (101, 111),
    ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 32, 4): (131, 221),
    ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71),
    ("LM", 10, 1): (11, 21, 41),
    ("LM", 20, 1): (11, 41),
    ("LM", 40, 1): (11,),
    ("LM", 5, 2): (31, 51, 61, 71),
    ("LM", 10, 2): (11, 31, 41),
    ("LM", 20, 2): (31, 41),
    ("LM", 40, 2): (11,),
    ("LM", 5, 4): (11, 31, 71, 91),
    ("LM", 10, 4): (11, 31, 61),
    ("LM", 20, 4): (11, 61),
    ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91),
    ("Recommendation", 1024, 1): (21, 51, 91),
    ("Recommendation", 2048, 1): (21, 41),
    ("Recommendation", 4096, 1): (41,),
}


def batches(mode: str, model: str, first: int, devices: int, epochs: int) -> list[int]:
    """The batch size of each epoch of the job as it is simulated. Raises KeyError for an unknown mode."""
    return MODES[mode](model, first, devices, epochs)


def profiled_batches(mode: str, model: str, first: int, devices: int, epochs: int) -> list[int]:
    """The batch size of each epoch in the authors' profile, from which their run time alone is counted."""
    if mode == "gns":
        return [*batches(mode, model, first, devices, epochs)[:-1], first]  # their loop leaves out the last epoch
    if mode != "accordion" or model not in ACCORDION:
        return batches(mode, model, first, devices, epochs)
    late = epochs * ALWAYS_CRITICAL
    return [LARGEST[model] if at > late and not _profile_critical(model, first, at) else first for at in range(epochs)]


def _static(model: str, first: int, devices: int, epochs: int) -> list[int]:
    return [first] * epochs


def _gns(model: str, first: int, devices: int, epochs: int) -> list[int]:
    doublings = DOUBLINGS.get((model, first, devices), ())
    return [min(first << sum(start <= at for start in doublings), LARGEST.get(model, first)) for at in range(epochs)]


def _accordion(model: str, first: int, devices: int, epochs: int) -> list[int]:
    if model not in ACCORDION:
        return [first] * epochs
    return [first if _critical(model, first, at) else LARGEST[model] for at in range(epochs)]


MODES = {"static": _static, "gns": _gns, "accordion": _accordion}


def _critical(model: str, first: int, epoch: int) -> bool:
    if model == "ResNet-50":
        return epoch % 30 < 10
    if model == "ResNet-18":
        return epoch < (20 if first == 256 else 10) or 150 <= epoch < 160 or 250 <= epoch < 260
    if model == "Recommendation":
        return epoch < {512: 30, 1024: 30, 2048: 40}.get(first, 10)
    return epoch < 10


def _profile_critical(model: str, first: int, epoch: int) -> bool:
    late = model == "Recommendation" and (60 <= epoch < 70 or 80 <= epoch < 90)
    return late or _critical(model, first, epoch)
