"""The gate before a cell, and what a kernel does when the service is slow, wrong or gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jupyter_client import KernelManager

import jupyter_gpushare
from jupyter_gpushare.errors import NotManaged
from jupyter_gpushare.kernel import hooks
from tests.kernel.service import ADMITTED, WAITS, Service


def shown(shell: Any) -> list[str]:
    return [output["data"].get("text/plain", "") for output in shell.display_pub.outputs]


def test_an_open_gate_lets_a_cell_run_without_asking(shell: Any, service: Service, gate: Path) -> None:
    gate.write_bytes(b"o\0")
    shell.run_cell("ran = 1")
    assert shell.user_ns["ran"] == 1
    assert service.calls("admit") == []


def test_the_cell_after_a_change_asks_though_the_gate_still_says_open(shell: Any, service: Service, gate: Path) -> None:
    gate.write_bytes(b"o\0")
    shell.run_cell("%gpu request --memory 60GiB")
    shell.run_cell("ran = 1")
    shell.run_cell("ran += 1")
    assert shell.user_ns["ran"] == 2
    assert len(service.calls("admit")) == 1


def test_a_closed_gate_asks_once_per_cell(shell: Any, service: Service) -> None:
    assert shell.run_cell("ran = 1\nran += 1").success
    assert shell.user_ns["ran"] == 2
    assert len(service.calls("admit")) == 1
    assert shown(shell) == []


def test_a_kernel_without_a_gate_file_always_asks(
    plain_shell: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUSHARE_GATE", "/nowhere/gate")
    jupyter_gpushare.load_ipython_extension(plain_shell)
    assert plain_shell.run_cell("1").success
    assert len(service.calls("admit")) == 1


def test_a_gate_file_that_is_cut_short_asks(shell: Any, service: Service, gate: Path) -> None:
    gate.write_bytes(b"")
    assert shell.run_cell("1").success
    assert len(service.calls("admit")) == 1


def test_every_call_carries_the_capability_and_nothing_else_does(shell: Any, service: Service) -> None:
    shell.run_cell("1")
    assert service.tokens == {"gpushare secret"}


def test_a_cell_that_waits_says_its_place_and_runs_when_it_is_let_in(shell: Any, service: Service) -> None:
    answers = iter([WAITS, ADMITTED])
    service.answers["POST sessions/k1/admit"] = lambda body: (200, next(answers))
    assert shell.run_cell("ran = 1").success
    assert shell.user_ns["ran"] == 1
    assert shown(shell)[0].startswith("Waiting for a GPU, 3rd in line, about 4 min. The cell starts by itself.")
    assert shown(shell)[-1].startswith("The GPU is here.")
    assert shell.display_pub.outputs[-1]["update"]  # one output, kept up to date
    assert [body["wait_s"] for body in service.calls("admit")] == [2.0, 5.0]


def test_stop_during_the_wait_runs_nothing_of_the_cell(
    shell: Any, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(body: object) -> tuple[int, Any]:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        return 200, WAITS

    service.answers["POST sessions/k1/admit"] = stopped
    result = shell.run_cell("ran = 1\n1 / 0")
    assert not result.success
    assert "ran" not in shell.user_ns
    assert service.calls("leave") == [{}]
    assert capsys.readouterr().out.strip() == "Stopped while waiting for a GPU: nothing of this cell ran."
    service.answers["POST sessions/k1/admit"] = (200, ADMITTED)
    assert shell.run_cell("ran = 2").success  # the gate still works


class StoppedAsItIsFreed:
    """What an interrupt raises in a finaliser is dropped by Python."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_stop_that_python_drops_still_stops_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, seen = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: dropped.append(what.exc_type))
    before = signal.getsignal(signal.SIGINT)

    def wait(*answers: dict[str, Any], fails: Exception | None = None) -> None:
        with hooks.interruptible(seen.append) as told:
            StoppedAsItIsFreed()
            for answer in answers:
                told(answer)
            if fails is not None:
                raise fails

    with pytest.raises(KeyboardInterrupt):
        wait({"message": "You wait on."})
    with pytest.raises(KeyboardInterrupt):
        wait()
    with pytest.raises(KeyboardInterrupt):
        wait(fails=NotManaged("which would let the cell run"))
    assert dropped == [KeyboardInterrupt] * 3
    assert seen == []
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    "answer",
    [
        (503, {"message": "The broker is away.", "reason": "unavailable"}),
        (404, {"message": "No such session.", "reason": "not_found"}),
        (500, None),
        (200, {"surprise": 1}),
        (200, [1]),
    ],
    ids=["away", "unknown", "empty", "strange", "list"],
)
def test_a_service_that_fails_lets_the_cell_run_and_is_mentioned_once(
    shell: Any, service: Service, answer: tuple[int, Any]
) -> None:
    service.answers["POST sessions/k1/admit"] = answer
    for _ in range(3):
        assert shell.run_cell("ran = 1").success
    assert shell.user_ns["ran"] == 1
    assert len(service.calls("admit")) == 1  # nor is it asked again at once
    assert len(shown(shell)) == 1
    assert shown(shell)[0].startswith("The cell runs without asking for a GPU:")


def test_a_service_that_is_gone_lets_the_cell_run(
    plain_shell: Any, monkeypatch: pytest.MonkeyPatch, gate: Path
) -> None:
    monkeypatch.setenv("GPUSHARE_URL", "http://127.0.0.1:9/gpushare/api/v1/")  # the discard port: nobody is there
    monkeypatch.setenv("GPUSHARE_TOKEN", "secret")
    monkeypatch.setenv("GPUSHARE_SESSION", "k1")
    monkeypatch.setenv("GPUSHARE_GATE", str(gate))
    jupyter_gpushare.load_ipython_extension(plain_shell)
    assert plain_shell.run_cell("ran = 1").success
    assert plain_shell.user_ns["ran"] == 1


@pytest.mark.parametrize(
    ("cell", "waits"),
    [
        ("%gpu", False),
        ("%gpu why", False),
        ("# where am I?\n%gpu\n\n%gpu history", False),
        ("%gpu?", False),
        ("?%gpu", False),
        ("%%gpu\nx = 1", False),
        ("", False),
        ("%gpu\nx = 1", True),
        ("%gpustat", True),
        ("x = 1  # %gpu", True),
    ],
)
def test_only_cells_of_gpu_lines_never_wait(cell: str, waits: bool) -> None:
    assert hooks.only_magics(cell) is not waits


def test_code_that_a_frontend_runs_silently_never_waits(shell: Any, service: Service) -> None:
    shell.run_cell("ran = 1", silent=True)
    assert shell.user_ns["ran"] == 1
    assert service.calls("admit") == []


def test_the_mask_follows_the_admission_while_cuda_has_not_started(shell: Any, service: Service) -> None:
    service.answers["POST sessions/k1/admit"] = (200, {**ADMITTED, "devices": ["GPU-new"], "indices": [1]})
    shell.run_cell("import os; seen = os.environ['CUDA_VISIBLE_DEVICES']")
    assert shell.user_ns["seen"] == "GPU-new"


def test_a_mask_of_indices_stays_one_of_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    hooks.adopt({"devices": ["GPU-new"], "indices": [3]})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_the_mask_stays_once_a_framework_has_started_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.cuda = ModuleType("cuda")  # type: ignore[attr-defined]
    torch.cuda.is_initialized = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-old")
    hooks.adopt({"devices": ["GPU-new"], "indices": [3]})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-old"


def test_an_admission_without_devices_leaves_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-old")
    hooks.adopt({"devices": [], "indices": []})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-old"


def test_loading_says_hello_and_unloading_says_good_bye(shell: Any, service: Service) -> None:
    assert service.wait_for("hello") == {"cooperative": True}
    jupyter_gpushare.unload_ipython_extension(shell)
    with service.news:
        assert service.news.wait_for(lambda: {"cooperative": False} in service.calls("hello"), 10)
    assert "gpu" not in shell.magics_manager.magics["line"]
    shell.run_cell("ran = 1")
    assert service.calls("admit") == []


def test_loading_twice_changes_nothing(shell: Any, service: Service) -> None:
    jupyter_gpushare.load_ipython_extension(shell)
    shell.run_cell("1")
    assert len(service.calls("admit")) == 1
    assert len(shell.ast_transformers) == 1


def test_a_trim_request_empties_caches_once_no_cell_runs(
    shell: Any, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed, running, go_on = threading.Event(), threading.Event(), threading.Event()
    torch = ModuleType("torch")
    torch.cuda = ModuleType("cuda")  # type: ignore[attr-defined]
    torch.cuda.is_initialized = lambda: True  # type: ignore[attr-defined]
    torch.cuda.memory_reserved = lambda: 0  # type: ignore[attr-defined]
    torch.cuda.empty_cache = trimmed.set  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    gate.write_bytes(b"o\0")

    def ask() -> None:
        running.wait(10)
        gate.write_bytes(b"o\1")
        assert not trimmed.wait(1.5)  # more than a look later
        go_on.set()

    asking = threading.Thread(target=ask)
    asking.start()
    shell.user_ns |= {"running": running, "go_on": go_on}
    shell.run_cell("running.set(); go_on.wait(20)")
    asking.join()
    assert trimmed.wait(10)


def test_outside_a_managed_kernel_nothing_is_hooked(plain_shell: Any) -> None:
    before = threading.active_count()
    jupyter_gpushare.load_ipython_extension(plain_shell)
    assert plain_shell.ast_transformers == []
    assert threading.active_count() == before
    plain_shell.run_cell("%gpu")
    assert len(shown(plain_shell)) == 1
    assert "does not manage this kernel" in shown(plain_shell)[0]
    with pytest.raises(NotManaged):
        jupyter_gpushare.session()


def test_a_kernel_with_only_ipython_loads_it_light() -> None:
    """Nothing heavy is imported, and nothing that such a kernel may lack."""
    code = """
        import sys, time
        heavy = {"numpy", "msgspec", "jupyter_server", "sqlalchemy", "psutil", "tornado", "traitlets.config.nothing"}
        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in heavy:
                    raise ModuleNotFoundError(name)
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.core.history import HistoryManager
        HistoryManager.enabled = False
        shell = InteractiveShell.instance()
        sys.meta_path.insert(0, Missing())
        before = set(sys.modules)
        began = time.perf_counter()
        shell.run_line_magic("load_ext", "jupyter_gpushare")
        took = time.perf_counter() - began
        new = {name.split(".")[0] for name in set(sys.modules) - before}
        print(f"{1000 * took:.1f} ms", file=sys.stderr)
        assert not new & (heavy | {"http", "ssl", "email", "urllib"}), new
        shell.run_cell("%gpu")
        print(took)
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUSHARE_")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    print("load:", done.stderr.strip())


def test_stop_in_a_real_kernel_runs_nothing_of_the_cell(service: Service, gate: Path, tmp_path: Path) -> None:
    """Also for a cell with a top-level await, which ipykernel runs and interrupts in another way."""
    service.answers["POST sessions/k1/admit"] = (200, WAITS)
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(
        env={**os.environ, **service.environment(), "GPUSHARE_GATE": str(gate), "IPYTHONDIR": str(tmp_path)},
        extra_arguments=["--IPKernelApp.extra_extensions=jupyter_gpushare"],
    )
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        for number, cell in enumerate(["", "import asyncio; await asyncio.sleep(0)\n"], start=1):
            witness = tmp_path / f"ran-{number}"
            asked = client.execute(f"{cell}open({str(witness)!r}, 'w').close()")
            with service.news:
                assert service.news.wait_for(lambda n=number: len(service.calls("leave")) >= n - 1, 10)
                before = len(service.calls("admit"))
                assert service.news.wait_for(lambda n=before: len(service.calls("admit")) > n, 20)
            manager.interrupt_kernel()
            reply = _reply(client, asked)
            assert reply["status"] == "error"
            assert reply["traceback"] == ["Stopped while waiting for a GPU: nothing of this cell ran."]
            assert not witness.exists()
            assert len(service.calls("leave")) == number
        service.answers["POST sessions/k1/admit"] = (200, ADMITTED)
        assert _reply(client, client.execute("1"))["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _reply(client: Any, asked: str) -> dict[str, Any]:
    while True:
        message = client.get_shell_msg(timeout=30)
        if message["parent_header"].get("msg_id") == asked:
            return message["content"]
