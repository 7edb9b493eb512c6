# SPDX-License-Identifier: MIT
"""A board on loopback: an sshd of the tests' own, with its own keys and configuration, as the user who tests."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import pytest

from mpnet.deploy.board import Board


@dataclass(frozen=True)
class Loopback:
    """config: of ssh, in which `board` is this host. home: the folder that a login begins in."""

    config: Path
    home: Path

    def board(self, silent_s: float = 60, longest_s: float = 120) -> Board:
        """Return the board."""
        return Board("board", self.config, silent_s, longest_s)

    @property
    def folders(self) -> list[Path]:
        """Return the folders that mpnet has left there."""
        return sorted((self.home / ".mpnet-board").glob("*"))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def loopback(folder: Path, shell: str = "") -> Iterator[Loopback]:
    """Start sshd; logins begin in folder/home. shell: a script that takes every command's place; '': none does."""
    sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("SKIPPED WITHOUT SSH: the packages openssh-server and openssh-client have sshd and ssh")
    home, port = folder / "home", _free_port()
    home.mkdir()
    folder.chmod(0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    # The login's own home stays out of it: `cd` of the script goes where HOME says.
    entry = folder / "entry"
    entry.write_text(
        f"#!/bin/sh\nHOME='{home}'\nexport HOME\ncd\n" + (shell or 'exec sh -c "$SSH_ORIGINAL_COMMAND"\n'), encoding="utf-8"
    )
    entry.chmod(0o755)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nForceCommand {entry}\n"
        "PermitRootLogin yes\n",
        encoding="utf-8",
    )
    config = folder / "ssh_config"
    config.write_text(
        f"Host board\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder}/user\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking no\n  LogLevel ERROR\n",
        encoding="utf-8",
    )
    if os.access("/run", os.W_OK):  # where sshd of root goes before it knows who logs in
        Path("/run/sshd").mkdir(exist_ok=True)
    log = (folder / "log").open("wb")
    process = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stdout=log, stderr=log)
    try:
        for _ in range(200):
            if process.poll() is not None:
                pytest.skip(f"SKIPPED: sshd does not start here: {(folder / 'log').read_text(encoding='utf-8')[-300:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Loopback(config, home)
    finally:
        process.terminate()
        process.wait()
        log.close()
