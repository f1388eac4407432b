"""What real spawners would submit for the chosen GPU server: compared before, with the choice, and after a stop."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any

import pytest
from batchspawner import (
    CondorSpawner,
    GridengineSpawner,
    LsfSpawner,
    MoabSpawner,
    PBSSpawner,
    SlurmSpawner,
    TorqueSpawner,
)
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner
from kubespawner import KubeSpawner
from systemdspawner import SystemdSpawner, systemd

from jupyter_gpushare.hub import post_stop_hook, pre_spawn_hook
from jupyter_gpushare.hub.spawners import HOST_LABEL
from tests.hub.spawning import (
    CHOICE,
    Docker,
    OwnSpawner,
    SSHSpawner,
    Swarm,
    batch,
    service,
    submitted,
)

Slurm, Torque, Moab, PBS = map(batch, (SlurmSpawner, TorqueSpawner, MoabSpawner, PBSSpawner))
Gridengine, Condor, Lsf = map(batch, (GridengineSpawner, CondorSpawner, LsfSpawner))
COMMAND = {"cmd": ["jupyterhub-singleuser"]}
KINDS: list[tuple[type, dict[str, Any]]] = [
    (KubeSpawner, {}),
    (Docker, COMMAND),
    (Swarm, COMMAND),
    *((kind, {"req_homedir": "/root"}) for kind in (Slurm, Torque, Moab, PBS, Gridengine, Condor, Lsf)),
    (SimpleLocalProcessSpawner, {}),
    (LocalProcessSpawner, {}),
    (SSHSpawner, {"remote_hosts": ["beta.example.org", "alpha.example.org"]}),
    (OwnSpawner, {}),
]
NAMES = [kind.__name__ if kind.__name__ != "Batch" else kind.__mro__[1].__name__ for kind, _ in KINDS]


def added(before: Any, after: Any) -> Any:
    """What `after` has that `before` has not, dicts by their keys."""
    if isinstance(before, dict) and isinstance(after, dict):
        assert before.keys() <= after.keys()
        found = {key: added(before.get(key), value) for key, value in after.items()}
        return {key: value for key, value in found.items() if value is not None}
    if before == after:
        return None
    if isinstance(before, list) and isinstance(after, list):
        assert all(entry in after for entry in before)
        return [entry for entry in after if entry not in before]
    return after


async def placed(spawner, **how):
    """What it would submit before, with the choice, and after a stop."""
    choice = how.pop("choice", CHOICE)
    before = copy.deepcopy(await submitted(spawner))
    spawner.user_options = {"gpushare": {"gpus": how.pop("gpus", 2)}}
    async with service(body=choice) as answers:
        await pre_spawn_hook(spawner, url=answers.url, **how)
    during = copy.deepcopy(await submitted(spawner))
    await post_stop_hook(spawner)
    return before, during, copy.deepcopy(await submitted(spawner))


def traits(spawner) -> dict[str, Any]:
    """What the spawner has, as far as it is configuration."""
    values = {name: getattr(spawner, name) for name in spawner.class_trait_names(config=True)}
    return {name: value if callable(value) else copy.deepcopy(value) for name, value in values.items()}


@pytest.mark.parametrize("resource", ["", "gpu"])
@pytest.mark.parametrize(("kind", "config"), KINDS, ids=NAMES)
async def test_nothing_is_left_behind_also_when_the_same_spawner_starts_again(users, kind, config, resource):
    spawner = users.spawner(kind, config)
    first = traits(spawner)
    for _ in range(3):
        before, during, after = await placed(spawner, gpu_resource=resource)
        assert during != before
        assert after == before
        assert traits(spawner) == first


@pytest.mark.parametrize(("kind", "config"), KINDS, ids=NAMES)
async def test_a_stop_nobody_told_of_leaves_nothing_to_the_next_start(users, kind, config):
    spawner = users.spawner(kind, config)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url, gpu_resource="gpu")
        once = copy.deepcopy(await submitted(spawner))
        await pre_spawn_hook(spawner, url=answers.url, gpu_resource="gpu")
    assert await submitted(spawner) == once


async def test_a_pod_prefers_the_node_and_learns_where_it_is(users):
    spawner = users.spawner(KubeSpawner, {"environment": {"MINE": "{username}"}})
    before, during, _ = await placed(spawner, gpu_resource="")

    assert before["spec"]["affinity"] is None
    (term,) = during["spec"]["affinity"]["node_affinity"]["preferred_during_scheduling_ignored_during_execution"]
    (wanted,) = term["preference"]["matchExpressions"]
    assert (wanted["key"], wanted["operator"], wanted["values"]) == (HOST_LABEL, "In", ["alpha"])
    assert during["spec"]["affinity"]["node_affinity"]["required_during_scheduling_ignored_during_execution"] is None
    env = {one["name"]: one for one in during["spec"]["containers"][0]["env"]}
    assert env["GPUSHARE_SERVER_NAME"]["value_from"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert env["GPUSHARE_BROKER_URL"]["value"].endswith("/services/gpushare/")
    assert env["MINE"]["value"] == "root"
    assert during["spec"]["containers"][0]["resources"] == before["spec"]["containers"][0]["resources"]


async def test_a_pod_requests_gpus_only_where_asked_and_whole_ones(users):
    spawner = users.spawner(KubeSpawner, {"extra_resource_limits": {"example.org/fpga": "1"}})
    _, during, _ = await placed(spawner, gpu_resource="nvidia.com/gpu")
    limits = during["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"example.org/fpga": "1", "nvidia.com/gpu": "2"}
    before, during, _ = await placed(spawner, gpu_resource="nvidia.com/gpu", gpus=0.25)
    assert during["spec"]["containers"][0]["resources"] == before["spec"]["containers"][0]["resources"]


async def test_node_affinities_by_name_stay_as_they_are(users):
    theirs = {"preference": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}, "weight": 1}
    spawner = users.spawner(KubeSpawner, {"node_affinity_preferred": {"pool": theirs}})
    _, during, _ = await placed(spawner)
    terms = during["spec"]["affinity"]["node_affinity"]["preferred_during_scheduling_ignored_during_execution"]
    assert sorted(term["preference"]["matchExpressions"][0]["key"] for term in terms) == [HOST_LABEL, "pool"]


async def test_a_container_sees_the_gpus_of_its_machine_where_asked(users):
    spawner = users.spawner(Docker, COMMAND | {"extra_host_config": {"shm_size": "1g"}})
    _, during, _ = await placed(spawner, gpu_resource="nvidia", gpus=0.25)
    host = during["host_config"]
    assert host["ShmSize"] == 2**30
    assert [(one["Driver"], one["Count"], one["Capabilities"]) for one in host["DeviceRequests"]] == [
        ("nvidia", -1, [["gpu"]])
    ]
    _, during, _ = await placed(spawner)
    assert not during["host_config"].get("DeviceRequests")


async def test_a_container_sees_the_gpus_without_the_service_and_none_where_none_was_chosen(users):
    spawner = users.spawner(Docker, COMMAND)
    await pre_spawn_hook(spawner, url="http://127.0.0.1:9", gpu_resource="nvidia")
    assert len((await submitted(spawner))["host_config"]["DeviceRequests"]) == 1
    spawner.user_options = {"gpushare": {"gpus": 0}}
    await pre_spawn_hook(spawner, url="http://127.0.0.1:9", gpu_resource="nvidia")
    assert not (await submitted(spawner))["host_config"].get("DeviceRequests")


@pytest.mark.parametrize("later", [False, True])
async def test_a_function_for_the_containers_configuration_keeps_its_say(users, later):
    def config(spawner):
        return {"shm_size": "1g"}

    async def config_later(spawner):
        return {"shm_size": "1g", "device_requests": []}

    function = config_later if later else config
    spawner = users.spawner(Docker, COMMAND | {"extra_host_config": function})
    before, during, after = await placed(spawner, gpu_resource="nvidia")
    assert during["host_config"]["ShmSize"] == 2**30
    assert len(during["host_config"].get("DeviceRequests", [])) == (0 if later else 1)
    assert after == before
    assert spawner.extra_host_config is function


async def test_a_service_of_a_swarm_runs_on_the_node_only(users):
    theirs = {"constraints": ["node.role==worker"], "preferences": [("spread", "node.labels.rack")]}
    spawner = users.spawner(Swarm, COMMAND | {"extra_placement_spec": theirs})
    _, during, _ = await placed(spawner, gpu_resource="NVIDIA-GPU")
    task = during["task_template"]
    assert task["Placement"]["Constraints"] == ["node.role==worker", "node.hostname==alpha"]
    assert task["Placement"]["Preferences"]
    assert task["ContainerSpec"]["Env"].count("GPUSHARE_SERVER_NAME={{.Node.Hostname}}") == 1
    (generic,) = task["Resources"]["Reservations"]["GenericResources"]
    assert generic == {"DiscreteResourceSpec": {"Kind": "NVIDIA-GPU", "Value": 2}}
    assert spawner.extra_placement_spec == theirs


SCRIPTS = [
    (Slurm, {"req_options": "--exclusive"}, ["#SBATCH --exclusive --nodelist=alpha\n", "#SBATCH --gres=gpu:2\n"]),
    (Torque, {"req_options": "-m n"}, ["#PBS -m n -l host=alpha\n"]),
    (Moab, {}, ["#PBS -l host=alpha\n"]),
    (Gridengine, {}, ["#$ -l hostname=alpha -l gpu=2\n"]),
    (
        Condor,
        {"req_options": "universe = vanilla"},
        ["\nuniverse = vanilla\nrequirements = regexp(\"^alpha(\\\\.|$)\", Machine)\nrequest_gpus = 2\nQueue\n"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "config", "lines"), SCRIPTS, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_batch_script_names_the_node_and_the_gpus(users, kind, config, lines):
    spawner = users.spawner(kind, {"req_homedir": "/root"} | config)
    before, during, _ = await placed(spawner, gpu_resource="gpu")
    for line in lines:
        assert line in during["script"] + "\n"
        assert line not in before["script"] + "\n"
    assert during["command"] == before["command"]
    if kind is not Condor:  # it hands on the whole environment
        assert "GPUSHARE_BROKER_URL" in during["script"]


async def test_gpus_are_requested_of_a_batch_system_only_where_asked(users):
    spawner = users.spawner(Slurm, {"req_homedir": "/root"})
    _, during, _ = await placed(spawner)
    assert "--nodelist=alpha" in during["script"]
    assert "gres" not in during["script"]
    _, during, _ = await placed(spawner, gpu_resource="gpu", gpus=0.5)
    assert "gres" not in during["script"]


@pytest.mark.parametrize("kind", [PBS, Lsf])
async def test_scripts_that_cannot_name_a_node_can_name_the_gpus(users, kind):
    script = users.spawner(kind, {"req_homedir": "/root"}).batch_script
    line = "# {{ngpus}}\n" if "{{" in script else "# {ngpus}\n"
    spawner = users.spawner(kind, {"req_homedir": "/root", "batch_script": script + line})
    _, during, _ = await placed(spawner, gpu_resource="gpu")
    assert during["script"].endswith("# 2\n" if kind is Lsf else "# 2")
    assert "alpha" not in during["script"]


THEIRS = [
    (KubeSpawner, {"node_selector": {HOST_LABEL: "gamma"}}, "node_selector"),
    (KubeSpawner, {"extra_resource_limits": {"gpu": "1"}}, "extra_resource_limits"),
    (KubeSpawner, {"environment": {"GPUSHARE_SERVER_NAME": "gamma"}}, "GPUSHARE_SERVER_NAME"),
    (Swarm, COMMAND | {"extra_placement_spec": {"constraints": ["node.hostname == gamma"]}}, "extra_placement_spec"),
    (Swarm, COMMAND | {"extra_placement_spec": {"constraints": ["node.id==1x"]}}, "extra_placement_spec"),
    (Docker, COMMAND | {"extra_host_config": {"runtime": "nvidia"}}, "extra_host_config"),
    (Slurm, {"req_options": "-w gamma"}, "req_options"),
    (Slurm, {"req_options": "--nodelist=gamma --gres=gpu:1"}, "req_options"),
    (Slurm, {"req_gres": "gpu:h100:1"}, "req_gres"),
    (Slurm, {"batch_script": "#!/bin/sh\n#SBATCH --nodelist=gamma\n#SBATCH {{options}}\n{{cmd}}"}, "batch_script"),
    (Slurm, {"batch_script": "#!/bin/sh\n{{cmd}}"}, "batch_script"),
    (Torque, {"req_options": "-l host=gamma"}, "req_options"),
    (Gridengine, {"req_options": "-l hostname=gamma"}, "req_options"),
    (Condor, {"req_options": "Requirements = (Machine == \"gamma\")"}, "req_options"),
    (SSHSpawner, {"remote_hosts": ["gamma"]}, "remote_hosts"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "config", "trait"), THEIRS, ids=lambda value: str(value)[:40])
async def test_what_is_configured_wins_and_the_log_says_so(users, caplog, kind, config, trait):
    config = ({"req_homedir": "/root"} if hasattr(kind, "req_homedir") else {}) | config
    spawner = users.spawner(kind, config)
    spawner.log = logging.getLogger("hub")
    caplog.set_level("INFO")
    _, during, _ = await placed(spawner, gpu_resource="gpu")

    said = [record.getMessage() for record in caplog.records if "wins" in record.getMessage()]
    assert any(trait in line for line in said), caplog.messages
    text = json.dumps(during, default=str)
    if any(word in str(config) for word in ("gamma", "node.id")):
        assert "alpha" not in text or kind is KubeSpawner


@pytest.mark.parametrize("kind", [KubeSpawner, Swarm])
async def test_where_containers_run_is_told_them_also_without_a_choice(users, kind):
    spawner = users.spawner(kind, COMMAND)
    async with service(status=503) as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert "GPUSHARE_SERVER_NAME" in json.dumps(await submitted(spawner), default=str)


@pytest.mark.parametrize(("kind", "config"), [one for one in KINDS if one[0] in (Docker, PBS, Lsf)])
async def test_a_spawner_that_a_choice_cannot_change_asks_nobody(users, kind, config):
    spawner = users.spawner(kind, config)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
        assert answers.asked == []


async def test_a_server_by_ssh_starts_on_the_chosen_one_of_its_hosts(users):
    spawner = users.spawner(SSHSpawner, {"remote_hosts": ["beta.example.org", "alpha.example.org"]})
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert spawner.remote_hosts == ["alpha.example.org"]
    assert spawner.get_env()["GPUSHARE_SERVER_NAME"] == "alpha"
    assert answers.asked[0][1]["among"] == ["beta.example.org", "beta", "alpha.example.org", "alpha"]
    await post_stop_hook(spawner)
    assert spawner.remote_hosts == ["beta.example.org", "alpha.example.org"]


async def test_a_class_nobody_knows_is_told_the_server_and_that_is_said_once(users, caplog):
    caplog.set_level("INFO")

    class Other(OwnSpawner):
        pass

    for _ in range(2):
        spawner = users.spawner(Other)
        spawner.log = logging.getLogger("hub")
        before, during, _ = await placed(spawner)
        new = added(before, during)["env"]
        assert new.pop("GPUSHARE_BROKER_URL")
        assert new == {"GPUSHARE_CHOSEN_SERVER": "alpha", "GPUSHARE_DEMAND": "gpus=2"}
    assert sum("not known here" in line for line in caplog.messages) == 1


async def test_on_the_hubs_own_machine_there_is_nothing_to_choose_so_nothing_is_asked(users):
    spawner = users.spawner(LocalProcessSpawner)
    before = await submitted(spawner)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert answers.asked == []
    assert list(added(before, await submitted(spawner))["env"]) == ["GPUSHARE_BROKER_URL"]


@pytest.mark.parametrize(("kind", "config"), KINDS, ids=NAMES)
async def test_what_a_user_had_of_late_chooses_a_place_and_requests_nothing(users, kind, config):
    spawner = users.spawner(kind, config)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url, gpu_resource="gpu")
        with_resource = copy.deepcopy(await submitted(spawner))
        await pre_spawn_hook(spawner, url=answers.url)
    if kind is Docker:  # what it requests takes nothing from anybody
        assert with_resource["host_config"].pop("DeviceRequests")
    assert await submitted(spawner) == with_resource


async def test_a_name_too_long_for_a_label_is_not_put_into_a_pod(users):
    spawner = users.spawner(KubeSpawner)
    _, during, _ = await placed(spawner, choice=CHOICE | {"server": "a" * 64})
    assert during["spec"]["affinity"] is None


async def test_a_unit_of_systemd_has_the_same_arguments_and_more_variables(users, tmp_path, monkeypatch):
    """`systemd-run` and `systemctl` are programs that write down their arguments."""
    tools, log = tmp_path / "bin", tmp_path / "calls"
    tools.mkdir()
    for name, code in (("systemd-run", 0), ("systemctl", 1)):
        (tools / name).write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo "systemd 255 (255)" && exit 0\n'
            f'[ {name} = systemd-run ] && printf "%s\\n" "$@" >{log}\n'
            f'[ {name} = systemctl ] && [ "$1" = is-active ] && [ -e {log} ] && exit 0\nexit {code}\n'
        )
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(systemd, "RUN_ROOT", str(tmp_path))
    spawner = users.spawner(SystemdSpawner, {"cmd": ["/bin/true"], "port": 4000})

    async def started() -> tuple[list[str], str]:
        log.unlink(missing_ok=True)
        for file in tmp_path.glob("*/*.env"):
            file.unlink()
        await spawner.start()
        (file,) = tmp_path.glob("*/*.env")
        return [line for line in log.read_text().splitlines() if "--port" not in line], file.read_text()

    before, variables = await started()
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    during, more = await started()
    await post_stop_hook(spawner)

    assert before == during
    new = set(more.splitlines()) - set(variables.splitlines())
    assert {line.split("=")[0] for line in new} - {"JUPYTERHUB_SERVICE_URL"} == {"GPUSHARE_BROKER_URL"}
    assert "GPUSHARE" not in (await started())[1]


def test_the_tests_cover_every_class_with_a_rule_of_its_own():
    from jupyter_gpushare.hub.spawners import APPLIERS

    tested = {base.__name__ for kind, _ in [*KINDS, (SystemdSpawner, {})] for base in kind.__mro__}
    assert set(APPLIERS) <= tested
