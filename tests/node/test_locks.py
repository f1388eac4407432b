"""One device, one broker: locks between real processes."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.node import locks
from jupyter_gpushare.node.locks import DeviceLocks

A, B = "GPU-aaaa", "MIG-GPU-bbbb/1/0"
ME = pwd.getpwuid(os.geteuid()).pw_name

HOLD = """
import sys
from pathlib import Path
from jupyter_gpushare.node.locks import DeviceLocks
held = DeviceLocks(Path(sys.argv[1]))
print(sorted(held.acquire(sys.argv[2:])[0]), flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that locks devices until it is told to end."""

    def __init__(self, folder: Path, *uuids: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), *uuids], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.mine = self.process.stdout.readline().strip()

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path, A)
    yield holder
    holder.end(kill=True)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[DeviceLocks]:
    held = DeviceLocks(tmp_path)
    yield held
    held.close()


def test_a_device_that_another_process_holds_is_not_ours_and_its_holder_is_named(other, mine):
    assert other.mine == f"['{A}']"
    ours, others = mine.acquire([A, B])
    assert ours == {B}
    assert others == {A: f"In use by the broker of {ME} (process {other.process.pid})."}


def test_a_killed_holder_leaves_its_device_free(other, mine):
    assert mine.acquire([A])[0] == frozenset()
    other.end(kill=True)
    assert mine.acquire([A]) == ({A}, {})


def test_close_gives_devices_back_and_acquire_takes_them_again(mine, tmp_path):
    assert mine.acquire([A]) == ({A}, {})
    assert mine.acquire([A, B]) == ({A, B}, {})
    mine.close()
    mine.close()
    later = Holder(tmp_path, A)
    assert later.mine == f"['{A}']"
    later.end()


def test_a_child_process_does_not_keep_the_lock(mine, tmp_path):
    mine.acquire([A])
    child = subprocess.Popen(["sleep", "30"], close_fds=False)
    mine.close()
    again = DeviceLocks(tmp_path)
    assert again.acquire([A])[0] == {A}
    again.close()
    child.kill()
    child.wait()


def test_the_file_is_open_to_the_next_user_whatever_the_umask(mine, tmp_path):
    before = os.umask(0o077)
    try:
        mine.acquire([A])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / A).stat().st_mode) == 0o666


def test_a_symbolic_link_in_place_of_a_lock_is_refused_and_its_target_untouched(mine, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / A).symlink_to(victim)
    ours, others = mine.acquire([A, B])
    assert ours == {B}
    assert "cannot be used" in others[A]
    assert victim.read_text() == "precious"


def test_a_second_name_of_somebody_elses_file_is_refused(mine, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.link(victim, tmp_path / A)
    assert "no plain file" in mine.acquire([A])[1][A]
    assert victim.read_text() == "precious"


def test_a_pipe_in_place_of_a_lock_is_refused_and_does_not_block(mine, tmp_path):
    os.mkfifo(tmp_path / A)
    assert "no plain file" in mine.acquire([A])[1][A]


def test_a_uuid_that_is_a_path_is_refused(mine, tmp_path):
    assert mine.acquire(["../../etc/passwd", ""])[0] == frozenset()
    assert list(tmp_path.iterdir()) == []


def test_what_the_holder_wrote_is_only_shown_when_it_looks_like_a_name(other, mine, tmp_path):
    (tmp_path / A).write_text("17 <script>alert(1)</script>\n")
    assert mine.acquire([A])[1] == {A: "In use by the broker of another user."}


def test_the_folder_comes_from_the_environment_and_is_sticky(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUSHARE_LOCK_DIR", str(tmp_path / "locks"))
    assert locks.folder() == tmp_path / "locks"
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o1777
    assert locks.folder() == tmp_path / "locks"


@pytest.mark.parametrize("trap", ["link", "file", "not sticky"])
def test_a_folder_that_cannot_be_trusted_is_refused(monkeypatch, tmp_path, trap):
    path = tmp_path / "locks"
    if trap == "link":
        path.symlink_to(tmp_path)
    elif trap == "file":
        path.write_text("")
    else:
        path.mkdir()
        path.chmod(0o777)
    monkeypatch.setenv("GPUSHARE_LOCK_DIR", str(path))
    with pytest.raises(OSError, match="lock folder"):
        locks.folder()


def test_where_the_first_folder_cannot_be_made_the_second_serves(monkeypatch, tmp_path):
    (tmp_path / "blocked").write_text("")
    monkeypatch.delenv("GPUSHARE_LOCK_DIR", raising=False)
    monkeypatch.setattr(locks, "SHARED", tmp_path / "blocked" / "gpushare")
    monkeypatch.setattr(locks, "FALLBACK", tmp_path / "fallback")
    assert locks.folder() == tmp_path / "fallback"
