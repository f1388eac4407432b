"""The ledger's file lies on a local disk of its owner's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpushare.broker.storage import default_url, on_network

TABLE = r"""
/dev/sda1 / ext4 rw,relatime 0 0
server:/export /home nfs4 rw 0 0
/dev/sdb1 /home/alice/local xfs rw 0 0
//nas/share /mnt/my\040share cifs rw 0 0
sshfs /mnt/far fuse.sshfs rw 0 0
overlay /overlay overlay rw 0 0
tmpfs /home/tmp tmpfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "network"),
    [
        ("/var/lib/gpushare", False),
        ("/home/alice/.local/state", True),
        ("/home/alice/local/state", False),
        ("/homework", False),
        ("/mnt/my share/x", True),
        ("/mnt/far/x", True),
        ("/overlay/x", False),
    ],
)
def test_network_file_systems_are_told_from_local_ones_by_the_deepest_mount(path, network):
    assert on_network(Path(path), TABLE) is network


def test_of_two_mounts_on_one_point_the_later_counts():
    assert on_network(Path("/data"), "a / ext4 rw 0 0\nb /data ext4 rw 0 0\nc /data nfs rw 0 0\n") is True


def test_without_a_mount_table_a_path_counts_as_local():
    assert on_network(Path("/data"), "") is False


@pytest.fixture
def chosen(tmp_path):
    """The URL and the reason for a home folder, a mount table, and a machine's folder that is there or not."""

    def choose(table: str = "", system: str = "none", **environ: str) -> tuple[str, str | None]:
        environ = {"HOME": str(tmp_path / "home"), **environ}
        return default_url(environ, tmp_path / system, tmp_path / "local", table)

    return choose


def test_the_machines_folder_is_used_where_an_admin_made_it_writable(tmp_path, chosen):
    folder = tmp_path / "var" / str(os.getuid())
    folder.parent.mkdir()
    assert chosen(system="var") == (f"sqlite:///{folder}/ledger.sqlite", None)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_else_the_users_own_state_folder_is(tmp_path, chosen):
    assert chosen() == (f"sqlite:///{tmp_path}/home/.local/state/gpushare/ledger.sqlite", None)
    assert chosen(XDG_STATE_HOME=str(tmp_path / "x"))[0] == f"sqlite:///{tmp_path}/x/gpushare/ledger.sqlite"


def test_a_home_on_a_network_file_system_is_not_used_and_said(tmp_path, chosen):
    url, why = chosen(f"/dev/sda / ext4 rw 0 0\nsrv:/ {tmp_path}/home nfs rw 0 0")

    assert url == f"sqlite:///{tmp_path}/local/gpushare-{os.getuid()}/ledger.sqlite"
    assert f"{tmp_path}/home/.local/state/gpushare is on a network file system" in why
    assert not (tmp_path / "home").exists()


def test_with_no_usable_place_the_ledger_is_in_memory_and_says_what_is_lost(chosen):
    url, why = chosen("srv:/ / nfs4 rw 0 0\n")

    assert url == "sqlite://"
    assert why.startswith("Leases are not kept over a restart, because ")


def test_a_folder_that_cannot_be_made_is_passed_over_with_the_reason(tmp_path, chosen):
    (tmp_path / "home").write_text("a file where a folder should be")
    url, why = chosen()

    assert url.startswith(f"sqlite:///{tmp_path}/local/")
    assert "cannot be used (Not a directory)" in why


def test_a_folder_somebody_else_put_in_the_way_is_not_used(tmp_path, chosen):
    (tmp_path / "home").write_text("a file where a folder should be")
    (tmp_path / "local").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "local" / f"gpushare-{os.getuid()}").symlink_to(tmp_path / "elsewhere")

    assert chosen()[0] == "sqlite://"
