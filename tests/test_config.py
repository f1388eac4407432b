"""Settings have the documented defaults, and a wrong one is said in one line that names it."""

from __future__ import annotations

import sys
import types
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traitlets import TraitError
from traitlets.config import Application, Config

from jupyter_gpushare import config as module
from jupyter_gpushare.config import GPUShare, Policy
from jupyter_gpushare.core import policy
from jupyter_gpushare.core.policy import Weights

DEFAULTS = {  # what people script against
    "GPUShare": {
        "devices": "auto",
        "simulated_inventory": "2x4xA100",
        "broker_url": "",
        "ledger_url": "",
        "bus_url": "",
        "bus_ca_file": "",
        "mask_format": "uuid",
        "gate_check": "",
        "terminals": "leave",
        "default_gpus": 0.1,
        "default_exclusive": False,
        "when_full": "wait",
        "start_wait_s": 10,
        "max_devices_per_user": 0,
        "simulated_user": "",
        "sample_interval_s": 1.0,
        "lease_ttl_s": 15,
        "remote_servers": {},
        "remote_ssh_config": "",
        "remote_keep_s": 600,
        "remote_python": "python3",
    },
    "Policy": {
        "idle_after_s": None,
        "warn_before_s": 5,
        "stop_after_s": 3600,
        "stop_warn_s": 300,
        "reclaim": "contended",
        "stop_idle_kernels": False,
        "off_lease": "charge",
        "busy_limit_s": 0,
        "expand_above": 0.9,
        "shrink_below": 0.3,
        "window_s": 30,
        "half_life_s": 86400,
        "weights": {"utilization": 1.0, "completion": 1.0, "fairness": 1.0, "energy": 0.2},
        "schedule": [],
        "learned": "",
        "data": {},
        "links": [],
        "groups": {},
    },
}


def configured(section: str, **traits: object) -> GPUShare | Policy:
    """The section as a config file with these lines makes it."""
    return getattr(module, section)(config=Config({section: traits}))


@pytest.mark.parametrize(
    ("section", "trait", "value"), [(s, t, v) for s, traits in DEFAULTS.items() for t, v in traits.items()]
)
def test_a_setting_has_its_documented_default(section, trait, value):
    assert getattr(configured(section), trait) == value


def test_every_setting_can_be_set_and_explains_itself():
    for kind in (GPUShare, Policy):
        for name, trait in kind.class_traits(config=True).items():
            assert len(trait.help) > 20, name


@pytest.mark.parametrize(
    ("section", "trait", "value", "allowed"),
    [
        ("GPUShare", "devices", "gpu", "one of 'auto', 'nvml', 'simulated', 'off'"),
        ("GPUShare", "simulated_inventory", "4xA100", "<servers>x<devices>x<model>"),
        ("GPUShare", "simulated_inventory", "0x4xA100", "<servers>x<devices>x<model>"),
        ("GPUShare", "simulated_inventory", "/nowhere/inventory.json", "the path of a JSON file"),
        ("GPUShare", "broker_url", "ftp://x", "http(s)://…, or unix:///path"),
        ("GPUShare", "broker_url", "unix://relative", "http(s)://…, or unix:///path"),
        ("GPUShare", "ledger_url", "/var/lib/l.sqlite", "sqlite:////path"),
        ("GPUShare", "bus_url", "10.0.0.1:4222", "nats://host:4222"),
        ("GPUShare", "bus_url", "nats://", "nats://host:4222"),
        ("GPUShare", "bus_url", "nats://a:4222, nats://b:4222", "nats://host:4222"),
        ("GPUShare", "mask_format", "pci", "one of 'uuid', 'index'"),
        ("GPUShare", "terminals", True, "one of 'leave', 'hide'"),
        ("GPUShare", "server_name", "", "a name without spaces and slashes"),
        ("GPUShare", "server_name", "my host", "a name without spaces and slashes"),
        ("GPUShare", "default_gpus", 1.5, "0, a fraction below 1, or a whole number"),
        ("GPUShare", "default_gpus", -1, "a number of at least 0"),
        ("GPUShare", "default_gpus", float("nan"), "a number of at least 0"),
        ("GPUShare", "default_exclusive", "yes", "a boolean"),
        ("GPUShare", "when_full", "queue", "one of 'wait', 'cpu', 'fail'"),
        ("GPUShare", "start_wait_s", -1, "at least 0 and at most 600"),
        ("GPUShare", "start_wait_s", True, "a number"),
        ("GPUShare", "max_devices_per_user", 1.5, "a whole number of at least 0"),
        ("GPUShare", "simulated_user", "bob", "only for devices = 'simulated'"),
        ("GPUShare", "sample_interval_s", 0, "at least 0.1"),
        ("GPUShare", "lease_ttl_s", None, "at least 1"),
        ("Policy", "idle_after_s", -1, "at least 0 or None"),
        ("Policy", "idle_after_s", "soon", "at least 0 or None"),
        ("Policy", "reclaim", "sometimes", "one of 'contended', 'always', 'never'"),
        ("Policy", "off_lease", "kill", "one of 'charge', 'warn', 'stop'"),
        ("Policy", "expand_above", 1.1, "at most 1"),
        ("Policy", "shrink_below", 0.95, "less than expand_above (0.9)"),
        ("Policy", "half_life_s", float("inf"), "at least 1"),
        ("Policy", "weights", {"speed": 1.0}, "utilization, completion, fairness, energy"),
        ("Policy", "weights", {"energy": -1.0}, "each at least 0"),
        ("Policy", "weights", dict.fromkeys(DEFAULTS["Policy"]["weights"], 0.0), "one greater than 0"),
        ("Policy", "weights", {"energy": "much"}, "float"),
        ("Policy", "weights", [1, 1], "a dict"),
        ("Policy", "schedule", [{"from": "9:00", "to": "18:00", "weights": {}}], "$[0].from"),
        ("Policy", "schedule", [{"from": "09:00", "to": "24:00", "weights": {}}], "$[0].to"),
        ("Policy", "schedule", [{"from": "09:00", "weights": {}}], "`to`"),
        ("Policy", "schedule", [{"from": "09:00", "to": "18:00", "days": "workdays", "weights": {}}], "mon-fri"),
        ("Policy", "schedule", [{"from": "09:00", "to": "18:00", "weights": {"speed": 1}}], "utilization"),
        ("Policy", "schedule", [{"from": "09:00", "to": "18:00", "weight": {}, "weights": {}}], "weight"),
        ("Policy", "schedule", {}, "a list"),
        ("GPUShare", "sharing", "mig", "'mps'"),
        ("GPUShare", "sharing_of", {"A100": "mig"}, "$[...]"),
        ("GPUShare", "sharing_of", {" ": "mps"}, "UUID"),
        ("GPUShare", "remote_servers", {"beta": "beta.example.org"}, "ssh://host"),
        ("GPUShare", "remote_servers", {"beta": "ssh://beta:70000"}, "ssh://host"),
        ("GPUShare", "remote_servers", ["beta"], "dict"),
        ("GPUShare", "remote_keep_s", 0, "at least 10"),
        ("GPUShare", "mps_burst", 0.5, "at least 1"),
        ("Policy", "learned", "no.such.module:weights", "No module named 'no'"),
        ("Policy", "learned", "math:weights", "no attribute 'weights'"),
        ("Policy", "learned", "math:pi", "module:function"),
        ("Policy", "data", {"/datasets": "alpha"}, "array"),
        ("Policy", "data", {"/datasets": {"servers": ["alpha"], "size": "much"}}, "a size such as 20GiB"),
        ("Policy", "links", [{"between": ["alpha", "alpha"], "gb_s": 1}], "two servers"),
        ("Policy", "links", [{"between": ["alpha", "beta"]}], "gb_s"),
        ("Policy", "links", [{"gb_s": 0}], "> 0"),
        ("Policy", "groups", {"vision": {"weigth": 2.0}}, "weigth"),
        ("Policy", "groups", {"vision": {"weight": 0}}, "> 0"),
        ("Policy", "groups", {"vision": {"cap": -1}}, ">= 0"),
        ("Policy", "groups", {"vision": {"cap": 8}}, "vision may have weight and members"),
        ("Policy", "groups", {"vision": {"servers": []}}, "vision may have weight and members"),
    ],
)
def test_an_unusable_value_is_said_in_one_line_with_trait_value_and_what_is_allowed(section, trait, value, allowed):
    with pytest.raises(TraitError) as caught:
        configured(section, **{trait: value})

    line = str(caught.value)
    assert line.startswith(f"{section}.{trait}: {value!r} is not usable; ")
    assert allowed in line
    assert "\n" not in line


def test_a_password_in_a_url_is_not_repeated():
    with pytest.raises(TraitError) as caught:
        configured("GPUShare", ledger_url="POSTGRES://gpu:secret@host/x")
    assert "secret" not in str(caught.value)


def test_settings_that_belong_together_may_come_in_any_order():
    assert configured("GPUShare", simulated_user="bob", devices="simulated").simulated_user == "bob"
    assert configured("GPUShare", devices="simulated", simulated_user="bob").simulated_user == "bob"
    assert configured("Policy", shrink_below=0.92, expand_above=0.95).shrink_below == 0.92


@pytest.mark.parametrize(
    ("trait", "value"),
    [
        ("broker_url", "https://hub.example.org/services/gpushare/"),
        ("broker_url", "http://[::1]:9000"),
        ("broker_url", "http://a:8815/services/gpushare/,http://b:8815/services/gpushare/"),
        ("broker_url", "unix:///run/gpushare/broker.sock"),
        ("bus_url", "nats://agent:secret@10.0.0.1:4222"),
        ("bus_url", "tls://a:4222,tls://[fd00::2]:4222"),
        ("ledger_url", "sqlite://"),
        ("ledger_url", "postgresql+psycopg://gpu:secret@host/gpushare"),
        ("simulated_inventory", "1x2xNVIDIA A100-SXM4-80GB"),
        ("remote_servers", {"beta": "ssh://beta", "gamma": "ssh://me@[fd00::2]:2222/"}),
        ("default_gpus", 0),
        ("default_gpus", 4),
    ],
)
def test_usable_values_are_taken(trait, value):
    assert getattr(configured("GPUShare", **{trait: value}), trait) == value


def test_an_inventory_may_be_a_file(tmp_path):
    file = tmp_path / "inventory.json"
    file.write_text("{}")
    assert configured("GPUShare", simulated_inventory=str(file)).simulated_inventory == str(file)


def test_values_from_the_command_line_are_read_as_numbers():
    class App(Application):
        classes = [GPUShare, Policy]  # noqa: RUF012  traitlets' way

    app = App()
    app.parse_command_line(["--GPUShare.start_wait_s=2.5", "--Policy.idle_after_s=60", "--Policy.weights=energy=2"])
    assert GPUShare(parent=app).start_wait_s == 2.5
    assert Policy(parent=app).idle_after_s == 60.0

    app = App()
    app.parse_command_line(["--GPUShare.max_devices_per_user=many"])
    with pytest.raises(TraitError, match=r"^GPUShare.max_devices_per_user: 'many' is not usable; it must be a whole"):
        GPUShare(parent=app)


def test_the_lock_folder_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("GPUSHARE_LOCK_DIR", raising=False)
    assert GPUShare().lock_dir == ""
    monkeypatch.setenv("GPUSHARE_LOCK_DIR", "/run/locks")
    assert GPUShare().lock_dir == "/run/locks"


# --- what the core gets -------------------------------------------------------------------------------------------


def test_the_default_settings_are_the_cores_defaults():
    assert Policy().frozen() == policy.Policy()


def test_every_number_of_the_core_that_is_an_admins_can_be_set():
    changed = {
        "idle_after_s": 60.0,
        "warn_before_s": 1.0,
        "stop_after_s": 2.0,
        "stop_warn_s": 3.0,
        "reclaim": "always",
        "stop_idle_kernels": True,
        "busy_limit_s": 60.0,
        "expand_above": 0.8,
        "shrink_below": 0.2,
        "window_s": 4.0,
        "half_life_s": 5.0,
    }
    frozen = configured("Policy", **changed, weights={"energy": 3.0}).frozen()

    assert {name: getattr(frozen, name) for name in changed} == changed
    assert set(changed) | {"weights", "choose", "packing", "seed"} == set(policy.Policy.__dataclass_fields__)
    assert frozen.weights == policy.Weights(energy=3.0)  # those not named keep their default


SCHEDULE = [
    {"from": "09:00", "to": "18:00", "days": "mon-fri", "weights": {"completion": 5.0}},
    {"from": "22:00", "to": "06:00", "days": "fri,sat", "weights": {"energy": 9.0}},
]


@pytest.mark.parametrize(
    ("when", "completion", "energy"),
    [
        ("2024-10-04 09:00", 5.0, 0.2),  # a Friday
        ("2024-10-04 17:59", 5.0, 0.2),
        ("2024-10-04 18:00", 1.0, 0.2),
        ("2024-10-05 12:00", 1.0, 0.2),  # Saturday
        ("2024-10-04 22:00", 1.0, 9.0),
        ("2024-10-05 05:59", 1.0, 9.0),  # still Friday's night
        ("2024-10-06 03:00", 1.0, 9.0),  # Saturday's night
        ("2024-10-07 03:00", 1.0, 0.2),  # Sunday's is not named
    ],
)
def test_the_schedule_changes_weights_at_its_local_times(when, completion, energy):
    weights = configured("Policy", schedule=SCHEDULE).frozen(datetime.fromisoformat(when)).weights
    assert (weights.completion, weights.energy) == (completion, energy)
    assert weights.fairness == 1.0


@given(
    when=st.datetimes(),
    times=st.tuples(st.times(), st.times()).map(lambda both: [f"{time:%H:%M}" for time in both]),
    days=st.sampled_from(["mon-sun", "sat-mon", "wed"]),
)
def test_a_period_and_its_complement_cover_every_moment_once(when, times, days):
    start, end = times
    if start == end:
        return
    holds = [
        configured("Policy", schedule=[{"from": a, "to": b, "days": "mon-sun", "weights": {"energy": 7.0}}])
        .frozen(when)
        .weights.energy
        == 7.0
        for a, b in ((start, end), (end, start))
    ]
    assert sorted(holds) == [False, True]
    configured("Policy", schedule=[{"from": start, "to": end, "days": days, "weights": {}}]).frozen(when)


def test_users_belong_to_the_first_group_that_names_them_and_weigh_as_it_does():
    groups = {
        "students": {"members": ["alice", "bob"], "weight": 0.5},
        "vision": {"members": ["alice"], "weight": 2.0},
    }
    settings = configured("Policy", groups=groups)

    assert settings.user_weights() == {"alice": 0.5, "bob": 0.5}
    assert settings.group_weights() == {"students": 0.5, "vision": 2.0}
    assert settings.user_groups() == {"alice": "students", "bob": "students"}


def test_a_learned_policy_is_a_plain_function_by_its_name(monkeypatch, caplog):
    module = types.ModuleType("trained")
    module.weights = lambda features: {"energy": 10.0 * features}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trained", module)
    schedule = [{"from": "09:00", "to": "18:00", "weights": {"completion": 5.0}}]
    policy = configured("Policy", learned="trained:weights", schedule=schedule).frozen(datetime(2026, 12, 2, 12))

    assert policy.choose(0.3) == Weights(completion=5.0, energy=3.0)
    assert policy.choose(None) == policy.choose("x") == Weights(completion=5.0)  # it fails: what is configured holds
    assert policy.choose(-1.0) == Weights(completion=5.0)
    assert len(caplog.records) == 1
    assert configured("Policy").frozen().choose is None
