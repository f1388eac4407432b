"""What a kernel declares reaches its simulated device, whatever happens between them."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare import simulated
from jupyter_gpushare.errors import BadDemand, NotManaged, Refused, Unavailable
from jupyter_gpushare.model import Assign, Attach, Park, Resume, Simulate
from jupyter_gpushare.node.inventory import parse_inventory
from jupyter_gpushare.node.simulated import CONTEXT, SimulatedBackend
from jupyter_gpushare.simulated import Allocation, Declared
from jupyter_gpushare.units import GIB


class Channel:
    """Carries calls straight to a simulated device, as JSON; `away` and `refusal` are its troubles."""

    session = "a"

    def __init__(self, backend):
        self.backend, self.away, self.refusal, self.calls = backend, False, None, 0

    def call(self, method, path, body=None, timeout=10.0):
        self.calls += 1
        assert (method, path) == ("POST", "sessions/a/simulate")
        if self.away:
            raise Unavailable("no answer")
        if self.refusal is not None:
            return self.refusal
        command = msgspec.json.decode(msgspec.json.encode(body), type=Simulate)
        return 200, msgspec.to_builtins(self.backend.simulate(command))


class Kernel:
    """A kernel on one simulated A100; time passes only while it sleeps."""

    def __init__(self, clock):
        self.clock, self.on_sleep = clock, lambda: None
        (server,) = parse_inventory("1x1xA100")
        self.uuid = server.devices[0].uuid
        self.server = server
        self.channel = Channel(None)
        self.restart_server()
        self.declared = Declared(self.channel, clock, self.sleep)

    def restart_server(self):
        self.backend = SimulatedBackend(
            self.server, self.clock, wait=self.clock.advance, alive=lambda pid, started: True
        )
        self.channel.backend = self.backend
        self.add("a", 1)

    def add(self, session, pid):
        self.backend.attach(Attach(session=session, pid=pid, started=1.0, user="alice", devices=(self.uuid,)))
        self.backend.assign(Assign(session=session, shares={self.uuid: 0.5}))

    def sleep(self, seconds):
        self.clock.advance(seconds)
        self.on_sleep()

    def work(self, seconds=10.0, memory=0):
        running = {"work": f"w{self.clock()}", "seconds": seconds, "utilization": 1.0, "memory_utilization": 0.2}
        return self.declared.run(running, memory)

    def device(self):
        return self.backend.sample()[0]


@pytest.fixture
def kernel(clock):
    return Kernel(clock)


def test_work_returns_when_it_is_done_and_gives_its_memory_back(kernel):
    seen = []
    kernel.on_sleep = lambda: seen.append((kernel.device().memory_used, kernel.device().utilization))

    took = kernel.work(seconds=10, memory=6 * GIB)

    assert 10 <= took <= 11
    assert seen[0] == (6 * GIB + CONTEXT, 1.0)
    assert (kernel.device().memory_used, kernel.device().utilization) == (CONTEXT, 0.0)


def test_a_neighbour_makes_it_take_longer(kernel):
    kernel.add("b", 2)
    kernel.backend.simulate(Simulate(session="b", work="b", seconds=1000, utilization=1.0))

    assert 20 <= kernel.work(seconds=10) <= 21


def test_it_asks_less_and_less_often(kernel):
    kernel.work(seconds=60)

    assert kernel.channel.calls < 80


def test_parked_work_stands_still_and_goes_on_after(kernel):
    def park_once():
        if kernel.clock() > 1003 and not kernel.backend.held():
            kernel.on_sleep = lambda: None
            kernel.backend.park(Park(session="a"), ())
            kernel.clock.advance(100)
            kernel.backend.resume(Resume(session="a", devices={}, memory=0))

    kernel.on_sleep = park_once

    assert 110 <= kernel.work(seconds=10) <= 112


def test_stop_ends_the_work_on_the_device_too(kernel):
    def interrupt():
        if kernel.clock() > 1003:
            raise KeyboardInterrupt

    kernel.on_sleep = interrupt
    with pytest.raises(KeyboardInterrupt):
        kernel.work(seconds=1000, memory=GIB)

    assert (kernel.device().utilization, kernel.device().memory_used) == (0.0, CONTEXT)


def test_a_server_that_starts_anew_learns_all_of_it_again_and_no_progress_is_lost(kernel):
    held = Allocation(kernel.declared, 2 * GIB)

    def restart():
        if kernel.clock() > 1006:
            kernel.on_sleep = lambda: None
            kernel.restart_server()

    kernel.on_sleep = restart

    assert 10 <= kernel.work(seconds=10) <= 13
    assert kernel.device().memory_used == 2 * GIB + CONTEXT
    held.free()


def test_a_server_that_is_away_for_a_while_is_waited_for_and_one_that_stays_away_is_not(kernel):
    def away_until_1030():
        kernel.channel.away = 1003 < kernel.clock() < 1030

    kernel.on_sleep = away_until_1030
    assert 30 <= kernel.work(seconds=10) <= 32

    kernel.on_sleep = lambda: None
    kernel.channel.away = True
    with pytest.raises(Unavailable):
        kernel.work()
    kernel.channel.away = False
    kernel.declared.declare()
    assert (kernel.device().utilization, kernel.device().memory_used) == (0.0, CONTEXT)


def test_memory_is_held_until_it_is_freed_once(kernel):
    with Allocation(kernel.declared, 6 * GIB) as held:
        other = Allocation(kernel.declared, GIB)
        assert kernel.device().memory_used == 7 * GIB + CONTEXT
        held.free()
        assert kernel.device().memory_used == GIB + CONTEXT
    other.free()
    other.free()

    assert kernel.device().memory_used == CONTEXT
    assert "freed" in repr(other)


def test_too_much_memory_is_refused_in_words_and_leaves_what_was_there(kernel):
    held = Allocation(kernel.declared, 70 * GIB)

    with pytest.raises(Refused, match=r"^not enough memory on GPU 0: 20\.0 GiB asked, 9\.7 GiB free$") as caught:
        Allocation(kernel.declared, 20 * GIB)
    with pytest.raises(Refused):
        kernel.work(memory=20 * GIB)

    assert caught.value.reason == "out_of_memory"
    assert kernel.device().memory_used == 70 * GIB + CONTEXT
    assert kernel.device().utilization == 0.0
    held.free()


def test_an_allocation_of_a_parked_session_waits_until_it_is_back(kernel):
    kernel.declared.declare()
    kernel.backend.park(Park(session="a"), ())

    def resume_late():
        if kernel.clock() > 1010:
            kernel.on_sleep = lambda: None
            kernel.backend.resume(Resume(session="a", devices={}, memory=0))

    kernel.on_sleep = resume_late
    Allocation(kernel.declared, GIB)

    assert kernel.clock() > 1010
    assert kernel.device().memory_used == GIB + CONTEXT


def test_what_the_server_refuses_keeps_its_reason(kernel):
    kernel.channel.refusal = (409, {"message": "There are no simulated devices here.", "reason": "not_simulated"})

    with pytest.raises(Exception, match=r"^There are no simulated devices here\.$") as caught:
        kernel.work()

    assert caught.value.reason == "not_simulated"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"utilization": 1.5}, "utilization"),
        ({"utilization": 0}, "utilization"),
        ({"utilization": "much"}, "utilization"),
        ({"kind": "quantum"}, "kind"),
        ({"seconds": "soon"}, "seconds"),
        ({"seconds": -1}, "seconds"),
        ({"memory": "6 potatoes"}, "memory"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named_before_anything_is_told(kernel, monkeypatch, arguments, named):
    monkeypatch.setattr(simulated, "_declared", kernel.declared)

    with pytest.raises(BadDemand, match=f"^{named}: "):
        simulated.work(**arguments)

    assert kernel.channel.calls == 0


def test_the_three_public_verbs_speak_for_this_kernel(kernel, monkeypatch):
    monkeypatch.setattr(simulated, "_declared", kernel.declared)

    simulated.use()
    assert kernel.device().memory_used == CONTEXT
    with simulated.allocate("6GiB"):
        assert kernel.device().memory_used == 6 * GIB + CONTEXT
        assert 2 <= simulated.work(seconds=2, utilization=0.5, memory="1GiB", kind="data") < 3


def test_outside_a_managed_kernel_it_says_so_in_one_line(monkeypatch):
    monkeypatch.delenv("GPUSHARE_TOKEN", raising=False)

    with pytest.raises(NotManaged, match=r"^[^\n]+$"):
        simulated.work()
