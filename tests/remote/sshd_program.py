"""`python sshd_program.py FOLDER IP`: lets in who has the key in the folder; says its port."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncssh


class Door(asyncssh.SSHServer):
    def unix_server_requested(self, listen_path: str) -> bool:
        return True


async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(process.command, stdin=pipe, stdout=pipe, stderr=pipe)
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
    process.exit(await child.wait())


async def serve(folder: Path, ip: str) -> None:
    host_key, user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user_key.write_private_key(folder / "key")
    (folder / "authorized").write_bytes(user_key.export_public_key())
    (folder / "known").write_text(f"* {host_key.export_public_key().decode()}")
    options = f"IdentityFile {folder / 'key'}\n  UserKnownHostsFile {folder / 'known'}\n  IdentitiesOnly yes\n"
    (folder / "config").write_text(f"Host *\n  {options}")
    server = await asyncssh.listen(
        ip,
        0,
        server_host_keys=[host_key],
        authorized_client_keys=str(folder / "authorized"),
        server_factory=Door,
        process_factory=run,
        encoding=None,
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.wait_closed()


asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
