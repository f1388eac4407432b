"""Which simulated servers and devices a text or a file names."""

from __future__ import annotations

import json

import pytest

from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.node.inventory import parse_inventory
from jupyter_gpushare.units import GIB


def test_the_shorthand_names_servers_devices_and_a_known_model():
    servers = parse_inventory("2x4xA100")

    assert [server.name for server in servers] == ["alpha", "beta"]
    assert [device.index for device in servers[1].devices] == [0, 1, 2, 3]
    device = servers[0].devices[0]
    assert device.model == "NVIDIA A100-SXM4-80GB"
    assert (device.memory, device.tflops, device.bandwidth_gb_s) == (80 * GIB, 312, 2039)


def test_after_the_greek_alphabet_servers_are_numbered():
    names = [server.name for server in parse_inventory("26x1xT4")]

    assert names[23:] == ["omega", "server-25", "server-26"]


def test_uuids_are_the_same_at_every_start_and_differ_between_people():
    mine, again, other = (parse_inventory("2x2xA100", salt) for salt in ("host/alice", "host/alice", "host/bob"))

    uuids = [device.uuid for server in mine for device in server.devices]
    assert uuids == [device.uuid for server in again for device in server.devices]
    assert len({*uuids, *(device.uuid for server in other for device in server.devices)}) == 8
    assert all(uuid.startswith("GPU-") and len(uuid) == 40 for uuid in uuids)


def test_a_file_gives_every_fact_or_names_a_known_model_alone(tmp_path):
    path = tmp_path / "inventory.json"
    path.write_text(
        json.dumps(
            {
                "servers": [
                    {
                        "name": "lab",
                        "link_gb_s": 12,
                        "host_memory_gib": 64,
                        "devices": [
                            {"model": "L4", "count": 2},
                            {
                                "model": "Own 1",
                                "memory_gib": 10,
                                "tflops": 5,
                                "bandwidth_gb_s": 100,
                                "power_w": [5, 50],
                                "slowdown_c": 80,
                            },
                        ],
                    }
                ]
            }
        )
    )

    (lab,) = parse_inventory(str(path))

    assert (lab.name, lab.link_gb_s, lab.host_memory) == ("lab", 12, 64 * GIB)
    assert [device.model for device in lab.devices] == ["NVIDIA L4", "NVIDIA L4", "Own 1"]
    assert (lab.devices[2].index, lab.devices[2].memory, lab.devices[2].power_limit_w) == (2, 10 * GIB, 50)


OWN = {"model": "Own", "memory_gib": 1, "tflops": 1, "bandwidth_gb_s": 1, "power_w": [1, 2], "slowdown_c": 80}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "JSON"),
        ({"servers": []}, "servers"),
        ({"servers": [{"name": "a", "devices": []}]}, "devices"),
        ({"servers": [{"name": "a", "devices": [OWN]}, {"name": "a", "devices": [OWN]}]}, "name"),
        ({"servers": [{"name": "a", "devices": [{"model": "Own"}]}]}, "memory_gib"),
        ({"servers": [{"name": "a", "devices": [OWN | {"tflops": 0}]}]}, "tflops"),
        ({"servers": [{"name": "a", "devices": [OWN | {"power_w": [9, 2]}]}]}, "power_w"),
        ({"servers": [{"name": "a", "devices": [OWN | {"count": 0}]}]}, "count"),
        ({"servers": [{"name": "a", "devices": [OWN | {"colour": "red"}]}]}, "colour"),
        ({"servers": [{"name": "a", "link_gb_s": -1, "devices": [OWN]}]}, "link_gb_s"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_in_one_line(tmp_path, content, named):
    path = tmp_path / "inventory.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))

    with pytest.raises(BadDemand) as caught:
        parse_inventory(str(path))

    assert named in str(caught.value)
    assert str(caught.value).startswith("simulated_inventory")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["0x4xA100", "2x0xA100", "2x4xNoSuchCard", "2x4", "", "/no/such/file.json", "2x400xA100"]
)
def test_a_text_that_names_nothing_is_refused_in_one_line(text):
    with pytest.raises(BadDemand, match=r"^simulated_inventory.*[^\n]$"):
        parse_inventory(text)
