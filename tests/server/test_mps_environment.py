"""What a kernel finds in its environment under MPS: its server, its ceiling, its limit; checked against a stand-in."""

from __future__ import annotations

import pytest

from jupyter_gpushare.model import Binding
from jupyter_gpushare.node.mps import Control
from jupyter_gpushare.server.environment import kernel_environment
from tests.standin import mps as standin

GPU, OTHER = "GPU-8932f937-aaaa-bbbb-cccc-dddddddddddd", "GPU-11111111-aaaa-bbbb-cccc-dddddddddddd"
PIPE = "/run/user/1000/gpushare/mps/gpushare-8932f937-aaaa/pipe"


def binding(**fields: object) -> Binding:
    return Binding(session="k", state="bound", **{"devices": (GPU,), "indices": (3,), "mps_pipe": PIPE} | fields)


@pytest.fixture
def control(tmp_path) -> Control:
    program = standin.install(tmp_path / "bin")
    found = Control(GPU, tmp_path / "gpushare" / "mps", program=str(program))
    found.start()
    found.begin_server(1000)
    return found


def test_a_kernel_under_mps_is_a_client_with_its_ceiling_and_its_limit(control):
    told = kernel_environment({}, binding(mps_pipe=str(control.pipe), ceiling=0.2, memory_limit=5 * 2**30))
    client = standin.connect(told, pid=7, uid=1000)
    assert client == standin.Client("mps", 20.0, {GPU: "5120M"})


def test_a_limit_names_the_visible_devices_and_no_other_or_it_would_be_dropped(control):
    told = kernel_environment({}, binding(mps_pipe=str(control.pipe), ceiling=0.2, memory_limit=2**30))
    limit = told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
    assert limit == f"{told['CUDA_VISIBLE_DEVICES']}=1024M"
    dropped = told | {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"{limit},{OTHER}=1024M"}
    assert standin.connect(dropped, pid=7, uid=1000).memory is None


def test_a_client_names_its_device_by_uuid_because_it_counts_only_those_of_its_server(control):
    told = kernel_environment({}, binding(mps_pipe=str(control.pipe)), mask_format="index")
    assert told["CUDA_VISIBLE_DEVICES"] == GPU
    assert standin.connect(told, pid=7, uid=1000).how == "mps"
    assert standin.connect(told | {"CUDA_VISIBLE_DEVICES": "3"}, pid=8, uid=1000).how == "refused"


@pytest.mark.parametrize(
    ("set_by_user", "ceiling"), [("10", "10"), ("80", "20"), ("nonsense", "20"), ("0", "20"), ("", "20")]
)
def test_a_user_may_lower_their_ceiling_and_not_raise_it(set_by_user, ceiling):
    told = kernel_environment({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": set_by_user}, binding(ceiling=0.2))
    assert told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == ceiling


def test_a_kernel_without_mps_is_led_away_from_the_pipes_of_ours_that_its_server_inherited(control):
    inherited = {"CUDA_MPS_PIPE_DIRECTORY": str(control.pipe)}
    told = kernel_environment(inherited, binding(mps_pipe=None))
    assert standin.connect(inherited | told, pid=7, uid=1000).how == "plain"


def test_an_mps_server_that_its_user_runs_is_theirs_to_use():
    inherited = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}
    assert "CUDA_MPS_PIPE_DIRECTORY" not in kernel_environment(inherited, binding(mps_pipe=None))


def test_no_limit_is_set_that_nobody_asked_for():
    assert {name for name in kernel_environment({}, binding(ceiling=0.5)) if name.startswith("CUDA_MPS")} == {
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    }
