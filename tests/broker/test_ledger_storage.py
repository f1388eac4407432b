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


def test_the_machines_folder_is_used_where_an_admin_made_it_writable(tmp_path):
    url, why = default_url({"HOME": str(tmp_path / "home")}, system=tmp_path, table="")
    assert url == f"sqlite:///{tmp_path}/{os.getuid()}/ledger.sqlite"
    assert why is None
    assert (tmp_path / str(os.getuid())).stat().st_mode & 0o777 == 0o700


def test_else_the_users_own_state_folder_is(tmp_path):
    none = tmp_path / "none"
    assert default_url({"HOME": str(tmp_path)}, none, "") == (
        f"sqlite:///{tmp_path}/.local/state/gpushare/ledger.sqlite",
        None,
    )
    assert default_url({"XDG_STATE_HOME": str(tmp_path / "x")}, none, "")[0].endswith("/x/gpushare/ledger.sqlite")


def test_a_home_on_a_network_file_system_is_not_used_and_said(tmp_path):
    home = tmp_path / "home"
    url, why = default_url({"HOME": str(home)}, tmp_path / "none", f"/dev/sda / ext4 rw 0 0\nsrv:/ {home} nfs rw 0 0")

    assert url == f"sqlite:////var/tmp/gpushare-{os.getuid()}/ledger.sqlite"
    assert f"{home}/.local/state/gpushare is on a network file system" in why
    assert not home.exists()


def test_with_no_usable_place_the_ledger_is_in_memory_and_says_what_is_lost(tmp_path):
    everything_remote = "srv:/ / nfs4 rw 0 0\n"
    url, why = default_url({"HOME": str(tmp_path)}, tmp_path, everything_remote)

    assert url == "sqlite://"
    assert why.startswith("Leases are not kept over a restart, because ")


def test_a_folder_that_cannot_be_made_is_passed_over_with_the_reason(tmp_path):
    (tmp_path / ".local").write_text("a file where a folder should be")
    url, why = default_url({"HOME": str(tmp_path)}, tmp_path / "none", "")

    assert url.startswith("sqlite:////var/tmp/")
    assert "cannot be used (Not a directory)" in why
