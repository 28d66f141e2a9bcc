from __future__ import annotations

from pathlib import Path

import pytest

from ledger.store.mounts import unsafe_filesystem

MOUNTS = r"""
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/me/local xfs rw 0 0
host /mnt/c 9p rw 0 0
share /mnt/two\040words cifs rw 0 0
sshfs /mnt/remote fuse.sshfs rw 0 0
/dev/sdb1 /mnt/stick fuseblk rw 0 0
overlay /var/lib/docker/overlay overlay rw 0 0
tmpfs /mnt/remote/over tmpfs rw 0 0
first /twice nfs rw 0 0
second /twice ext4 rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", None),
        ("/home", "nfs4"),
        ("/home/me", "nfs4"),
        ("/home/me/local/deep", None),
        ("/home/me/localish", "nfs4"),
        ("/homework", None),
        ("/mnt/c/ledgers", "9p"),
        ("/mnt/two words", "cifs"),
        ("/mnt/remote", "fuse.sshfs"),
        ("/mnt/remote/over/it", None),
        ("/mnt/stick", None),
        ("/var/lib/docker/overlay", None),
        ("/twice", None),
    ],
)
def test_the_file_system_of_the_nearest_mount_decides(folder: str, kind: str | None) -> None:
    assert unsafe_filesystem(Path(folder), MOUNTS) == kind


def test_without_a_table_of_mounts_nothing_is_held_against_a_folder() -> None:
    assert unsafe_filesystem(Path("/home"), "") is None
