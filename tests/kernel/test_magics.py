"""What a person types after %gpu, what the service is asked, and what is shown."""

from __future__ import annotations

import re
from typing import Any

import pytest

import jupyter_gpushare
from jupyter_gpushare.errors import BadDemand, NeedsRestart, OverLimit, Unavailable
from jupyter_gpushare.kernel.client import Session, error_of
from tests.kernel.service import ADMITTED, UUID, WAITS, WHY, Service


def data(shell: Any) -> dict[str, str]:
    """The one output there is."""
    assert len(shell.display_pub.outputs) == 1
    found: dict[str, str] = shell.display_pub.outputs[0]["data"]
    return found


def words(html: str) -> str:
    """What a person reads of it."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.S).split())


def test_gpu_shows_device_share_memory_neighbours_and_what_is_next(shell: Any) -> None:
    shell.run_cell("%gpu")
    card = data(shell)
    assert words(card["text/html"]) == (
        "Computing on GPU 2 , A100 80GB, alpha time-sliced: a target, not a wall 50% 10% guaranteed may grow to 100%"
        " GPU memory 31.2 of 80 GiB Busy 86% Neighbours 1 Charged 1.4 GPU-h In this kernel cuda:0"
        " Grows when others on this GPU pause. Nobody is waiting."
    )
    assert card["text/plain"].splitlines() == [
        "GPU 2  A100 80GB  alpha        computing",
        "share  |##|########..........|  50%   guaranteed 10%, up to 100%",
        "memory 31.2 of 80 GiB   busy 86%   1 neighbour   charged 1.4 GPU-h   here cuda:0",
        "next   Grows when others on this GPU pause. Nobody is waiting.",
    ]
    assert 'aria-valuetext="50%, guaranteed 10%, up to 100%"' in card["text/html"]


def test_why_shows_the_heaviest_terms_and_the_next_best(shell: Any, service: Service) -> None:
    service.answers["GET sessions/k1/why"] = (200, WHY)
    shell.run_cell("%gpu why")
    assert data(shell)["text/plain"].splitlines() == [
        "GPU 2 on alpha",
        "Free compute    +0.62  194 of 312 TFLOP/s",
        "Close to data   +0.14  nothing to move",
        "Leaves gaps     −0.08  others fit a little worse",
        "2 more terms    +0.08  see the panel",
        "Fitness 0.76, next best 0.45 (GPU 2 on alpha: less compute free).",
    ]


A100, RTX = {"model": "A100"}, {"model": "RTX 4090"}


@pytest.mark.parametrize(
    ("line", "call", "body"),
    [
        ("request 2", "request", {"gpus": 2.0}),
        ("request 0.5 --memory 20GiB", "request", {"gpus": 0.5, "memory": 20 * 2**30}),
        ("request --memory=512MiB", "request", {"memory": 512 * 2**20}),
        ("request 1 --exclusive --model A100", "request", {"gpus": 1.0, "exclusive": True, "constraints": A100}),
        ("request 2 --model 'RTX 4090' --restart", "request", {"gpus": 2.0, "constraints": RTX, "apply": "restart"}),
        ("request --model any", "request", {"constraints": {"model": "any"}}),
        ("request 1 --server alpha", "request", {"gpus": 1.0, "constraints": {"server": "alpha"}}),
        ("near /datasets/x", "request", {"near": ["data:/datasets/x"]}),
        ("near session:k2 /d", "request", {"near": ["session:k2", "data:/d"]}),
        ("release", "release", {}),
        ("pin 2h", "pin", {"for_s": 7200.0}),
        ("pin", "pin", {"for_s": 3600.0}),
        ("unpin", "unpin", {}),
        ("park", "park", {}),
        ("resume", "resume", {}),
    ],
)
def test_each_form_asks_the_service_for_exactly_that(
    shell: Any, service: Service, line: str, call: str, body: dict[str, Any]
) -> None:
    shell.run_cell(f"%gpu {line}")
    assert service.calls(call) == [body]
    assert len(shell.display_pub.outputs) == 1


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("foo", "'foo'"),
        ("request", "how many GPUs"),
        ("request two", "'two'"),
        ("request 1 2", "'2'"),
        ("request 1 --memry 2GiB", "'--memry'"),
        ("request 1 --memory", "--memory"),
        ("request 1 --memory --exclusive", "--memory"),
        ("request 1 --memory huge", "memory: 'huge'"),
        ("pin tomorrow", "pin: 'tomorrow'"),
        ("pin 1h 2h", "'2h'"),
        ("near", "near"),
        ("why not", "'not'"),
        ("request '1", "quote"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_word(
    shell: Any, service: Service, capsys: pytest.CaptureFixture[str], line: str, named: str
) -> None:
    service.asked.clear()
    assert not shell.run_cell(f"%gpu {line}").success
    written = capsys.readouterr()
    said = (written.out + written.err).strip()
    assert said.startswith("UsageError: %gpu: ")
    assert named in said
    assert "\n" not in said
    assert "Traceback" not in said
    assert [call for call, _ in service.asked if not call.endswith("/hello")] == []


def test_a_refusal_shows_the_services_words(shell: Any, service: Service) -> None:
    message = "You asked for 4 GPUs; your limit is 2. You keep the 1 you have."
    service.answers["POST sessions/k1/request"] = (409, {"message": message, "reason": "over_limit"})
    assert shell.run_cell("%gpu request 4").success
    assert data(shell)["text/plain"] == f"Not granted. {message}"


def test_what_the_service_finds_unusable_is_one_line_too(
    shell: Any, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers["POST sessions/k1/request"] = (400, {"message": "gpus: 1.5 is not usable.", "reason": "bad_demand"})
    shell.run_cell("%gpu request 1.5")
    written = capsys.readouterr()
    assert (written.out + written.err).strip() == "UsageError: %gpu: gpus: 1.5 is not usable."


def test_a_service_that_is_away_is_said_and_nothing_breaks(shell: Any, service: Service) -> None:
    service.answers["GET sessions/k1"] = (503, {"message": "The broker is away.", "reason": "unavailable"})
    assert shell.run_cell("%gpu").success
    assert "This notebook is untouched." in data(shell)["text/plain"]


def test_names_are_shown_as_text_never_as_markup(shell: Any, service: Service) -> None:
    service.answers["POST sessions/k1/park"] = (202, {"state": "idle", "message": "<script>x</script>"})
    shell.run_cell("%gpu park")
    assert "<script>" not in data(shell)["text/html"]


def test_wait_shows_the_line_and_then_the_share(shell: Any, service: Service) -> None:
    answers = iter([WAITS, ADMITTED])
    service.answers["POST sessions/k1/admit"] = lambda body: (200, next(answers))
    assert shell.run_cell("%gpu wait").success
    texts = [output["data"]["text/plain"] for output in shell.display_pub.outputs]
    assert texts[0].startswith("Waiting for a GPU, 3rd in line")
    assert "computing" in texts[-1]


def test_a_held_cell_takes_a_gpu_runs_and_gives_it_back(shell: Any, service: Service) -> None:
    shell.run_cell("%%gpu\nran = 1")
    assert shell.user_ns["ran"] == 1
    verbs = [call.rpartition("/")[2] for call, _ in service.asked if not call.endswith("/hello")]
    assert verbs == ["resume", "admit", "release"]


def test_a_held_cell_that_fails_gives_its_gpu_back_too(
    shell: Any, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not shell.run_cell("%%gpu\n1 / 0").success
    assert len(service.calls("release")) == 1
    assert capsys.readouterr().out.count("ZeroDivisionError") == 2  # the inner traceback's head and end, once


def test_a_held_cell_that_is_refused_does_not_run(shell: Any, service: Service) -> None:
    service.answers["POST sessions/k1/resume"] = (409, {"message": "No GPU fits.", "reason": "refused"})
    assert not shell.run_cell("%%gpu\nran = 1").success
    assert "ran" not in shell.user_ns
    assert data(shell)["text/plain"] == "Not granted. No GPU fits."


def test_a_held_cell_runs_where_nothing_manages_the_kernel(plain_shell: Any) -> None:
    jupyter_gpushare.load_ipython_extension(plain_shell)
    assert plain_shell.run_cell("%%gpu\nran = 1").success
    assert plain_shell.user_ns["ran"] == 1


def test_help_lists_every_form(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%gpu?")
    said = capsys.readouterr().out
    for form in ("why", "request", "near", "wait", "pin", "unpin", "park", "resume", "release", "history", "%%gpu"):
        assert form in said


def test_the_python_api_has_the_same_verbs(shell: Any, service: Service) -> None:
    session = jupyter_gpushare.session()
    assert session.status()["devices"][0]["uuid"] == UUID
    assert session.pin("30m") == {"state": "idle", "message": ""}
    assert session.wait()["admitted"] is True
    session.request(2, memory="1GiB")
    assert service.calls("pin") == [{"for_s": 1800.0}]
    assert service.calls("request") == [{"gpus": 2, "memory": 2**30}]


def test_a_wait_with_an_end_gives_the_place_up(shell: Any, service: Service) -> None:
    service.answers["POST sessions/k1/admit"] = (200, WAITS)
    assert jupyter_gpushare.session().wait(timeout_s=0.0)["admitted"] is False
    assert service.calls("leave") == [{}]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (409, {"message": "m", "reason": "restart_required"}, NeedsRestart),
        (409, {"message": "m", "reason": "over_limit"}, OverLimit),
        (400, {"message": "m", "reason": "new_reason"}, BadDemand),
        (502, None, Unavailable),
    ],
)
def test_an_answers_error_becomes_the_class_of_its_reason(status: int, body: object, kind: type[Exception]) -> None:
    assert type(error_of(status, body)) is kind


def test_a_session_without_its_variables_is_not_managed(monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_gpushare.errors import NotManaged

    monkeypatch.delenv("GPUSHARE_TOKEN", raising=False)
    with pytest.raises(NotManaged):
        Session.from_environment()
