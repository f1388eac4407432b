"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.model import Device
from jupyter_gpushare.node.masks import parse


def gpu(index: int, uuid: str, model: str = "A100", tflops: float | None = 312, legacy: str | None = None) -> Device:
    return Device(uuid=uuid, index=index, model=model, tflops=tflops, legacy_name=legacy)


A, B, C, D = "GPU-8932f937-aaaa", "GPU-8932f9ff-bbbb", "GPU-11111111-cccc", "GPU-22222222-dddd"
FOUR = tuple(gpu(index, uuid) for index, uuid in enumerate((A, B, C, D)))
M1, M2 = "MIG-77777777-1111", "MIG-88888888-2222"
SLICED = (gpu(0, M1, legacy="MIG-GPU-5ebe9e2f/1/0"), gpu(0, M2, legacy="MIG-GPU-5ebe9e2f/2/0"), gpu(1, A))


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        (None, (A, B, C, D)),
        ("", ()),
        ("  ", ()),
        ("NoDevFiles", ()),
        ("none", ()),
        ("-1", ()),
        ("0", (A,)),
        ("3,1", (D, B)),
        (" 2 , 0 ", (C, A)),
        ("1gpu2,2ampere", (B, C)),
        ("+1", (B,)),
        ("0,-1,2", (A,)),
        ("0,9,1", (A,)),
        ("0,,1", (A,)),
        ("0,x,1", (A,)),
        ("1,2,1", ()),
        ("00,0", ()),
        (f"{C},{A}", (C, A)),
        ("GPU-1111", (C,)),
        (f"GPU-1111,{C}", ()),
        ("GPU-8932f937", (A,)),
        (f"{A},1", (A,)),
        (f"1,{A}", (B,)),
        (f"{A},GPU-ffff,{B}", (A,)),
        (f"{A},{M1}", (A,)),
    ],
)
def test_a_mask_leaves_what_cuda_would_show(mask, visible):
    assert parse(mask, FOUR).uuids == visible


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        (M1, (M1,)),
        ("MIG-8888", (M2,)),
        ("MIG-GPU-5ebe9e2f/2/0", (M2,)),
        (f"{M1},MIG-GPU-5ebe9e2f/2/0", (M1, M2)),
        (f"{M1},{A}", (M1,)),
        ("MIG-GPU-5ebe9e2f/9/0", ()),
        ("0,1", (M1, A)),
    ],
)
def test_mig_instances_are_named_by_uuid_or_by_their_old_names(mask, visible):
    assert parse(mask, SLICED).uuids == visible


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("", "set and empty"),
        ("0,9", "no device 9"),
        ("GPU-8932", "ambiguous, it fits 2 devices"),
        ("1,1", "twice"),
        (f"0,{A}", "no device index"),
        (f"{A},0", "not of the same kind"),
        ("GPU-ffff", "no device 'GPU-ffff'"),
    ],
)
def test_a_mask_that_hides_something_says_why(mask, words):
    assert words in parse(mask, FOUR).message


@pytest.mark.parametrize("mask", [None, "0", "3,1", f"{A},{C}"])
def test_a_plain_mask_needs_no_words(mask):
    assert parse(mask, FOUR).message == ""


MIXED = (gpu(0, A, "P1000", 1.9), gpu(1, B, "A4000", 76.7), gpu(2, C, "unheard of", None))


def test_indices_of_mixed_devices_count_fastest_first_and_say_that_this_was_guessed():
    first = parse("0", MIXED)
    assert first.uuids == (B,)
    assert "fastest first" in first.message
    assert parse("2", MIXED).uuids == (C,)


def test_indices_count_by_pci_bus_where_the_environment_says_so():
    assert parse("0", MIXED, order="PCI_BUS_ID") == ((A,), "")


def test_uuids_of_mixed_devices_need_no_guess():
    assert parse(f"{C},{A}", MIXED) == ((C, A), "")


@given(st.text(alphabet="0123,-+ GPUMI/x8932f\n", max_size=40))
def test_any_text_gives_distinct_devices_and_no_error(text):
    visible = parse(text, FOUR).uuids
    assert len(set(visible)) == len(visible)
    assert set(visible) <= {A, B, C, D}


@given(st.permutations([A, B, C, D]), st.integers(0, 4))
def test_written_uuids_and_indices_read_back_in_their_order(uuids, count):
    chosen = tuple(uuids[:count])
    indices = [next(device.index for device in FOUR if device.uuid == uuid) for uuid in chosen]
    assert parse(",".join(chosen), FOUR).uuids == chosen
    assert parse(",".join(map(str, indices)), FOUR, order="PCI_BUS_ID").uuids == chosen


@given(
    st.lists(st.integers(0, 3), unique=True, min_size=1, max_size=3),
    st.sampled_from(["-1", "4", "x", "", A]),
    st.lists(st.integers(0, 3), max_size=3),
)
def test_what_follows_an_invalid_entry_changes_nothing(before, invalid, after):
    whole = ",".join([*map(str, before), invalid, *map(str, after)])
    assert parse(whole, FOUR).uuids == parse(",".join(map(str, before)), FOUR).uuids


@given(st.permutations(range(4)))
def test_the_order_of_the_list_of_devices_does_not_matter(order):
    shuffled = [FOUR[number] for number in order]
    assert parse("1,3", shuffled) == parse("1,3", FOUR)
