# SPDX-License-Identifier: MIT
"""A table that a board measures: end to end over an sshd on loopback, broken off, resumed, and boards that answer rubbish."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.deploy.board import Board, BoardFile, BoardState, describe_state, find_mprun, read_state
from mpnet.deploy.profile_on_board import profile_on_board
from mpnet.errors import ConfigError, EngineError, MpnetError
from mpnet.formats.cfg.read import read_cfg
from mpnet.speed.latency_table import LatencyTable, read_table
from mpnet.speed.profile import profile_network
from tests.cli.conftest import run_program
from tests.deploy.conftest import write_stand_in
from tests.deploy.sshd import Loopback, loopback
from tests.mprun.conftest import Program
from tests.mprun.conftest import mprun as mprun
from tests.networks import small_cfg, tiny_cfg, write_network

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a network and a table of it, which stands in for what mprun writes."""
    folder = tmp_path_factory.mktemp("network")
    write_network(folder, text=small_cfg())
    table = profile_network(folder / "net.cfg", precisions=("fp32", "int8"), threads=1, repeats=3)
    (folder / "table.json").write_text(json.dumps(table.as_json()), encoding="utf-8")
    return folder


def profile(folder: Path, board: Board, program: Path) -> LatencyTable:
    return profile_on_board(folder / "net.cfg", board, program=program, threads=1, repeats=3)


def test_a_table_comes_from_a_board_and_nothing_stays_there(host: Loopback, mprun: Program, folder: Path) -> None:
    """The program that users build, through ssh; the table is one that a sweep takes for this network."""
    output = folder / "board.json"
    arguments = ("profile", "net.cfg", "--on", "board", "--ssh-config", host.config, "--mprun", mprun.path, "--threads", 1)
    process = run_program(folder, *arguments, "--repeats", 3, "-o", output, "--json")
    assert process.returncode in (0, 1), process.stderr
    table = read_table(output)
    assert json.loads(process.stdout)["steps"].keys() == table.step_ms.keys()
    replace(table, machine={}).check(read_cfg(folder / "net.cfg"), ("fp32", "fp16", "int8"), 1e6)
    assert (table.machine["host"], table.machine["threads"]) == ("board", 1)
    assert (host.folders, list(host.home.iterdir())) == ([], [])


def test_a_command_that_was_killed_goes_on_where_the_board_is(host: Loopback, folder: Path, tmp_path: Path) -> None:
    program = write_stand_in(
        tmp_path, f'echo run >> "$HOME/runs"\nwhile [ ! -f "$HOME/go" ]; do sleep 0.1; done\ncp {folder}/table.json table.json'
    )
    words = [sys.executable, "-m", "mpnet", "profile", str(folder / "net.cfg"), "--on", "board", "--threads", "1"]
    words += ["--ssh-config", str(host.config), "--mprun", str(program), "-o", str(tmp_path / "board.json")]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (host.home / "runs").exists():
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    [kept] = host.folders
    copied = {file: os.stat(kept / file).st_ino for file in ("mprun", "net.mpnet")}
    second = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    assert {file: os.stat(kept / file).st_ino for file in copied} == copied
    (host.home / "go").touch()
    _, errors = second.communicate(timeout=120)
    assert second.returncode in (0, 1), errors
    assert read_table(tmp_path / "board.json").step_ms == read_table(folder / "table.json").step_ms
    assert (host.home / "runs").read_text(encoding="utf-8") == "run\n"
    assert host.folders == []


RUBBISH = {
    "noise": ("head -c 100000 /dev/urandom", "did not answer as a board does"),
    "nothing": ("exit 0", "did not answer as a board does"),
    "a refusal": ("echo no >&2; exit 3", "ssh ended with 3: 'no'"),
    "without end": ("exec cat /dev/zero", "sends more than 32 MB"),
    "silence": ("exec sleep 60", "said nothing for"),
    "a machine of another kind": ("cat > /dev/null; echo mpnet:machine pdp11", "is 'pdp11'; build mprun there"),
}


@pytest.mark.parametrize("kind", RUBBISH)
def test_a_board_that_answers_rubbish_gives_one_line(kind: str, folder: Path, tmp_path: Path) -> None:
    script, message = RUBBISH[kind]
    (tmp_path / "board").mkdir()
    with loopback(tmp_path / "board", script + "\n") as host, pytest.raises(MpnetError) as caught:
        profile_on_board(folder / "net.cfg", host.board(silent_s=3 if kind == "silence" else 60), repeats=3)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


WRONG = {
    "no JSON": ("echo '{' > table.json", "what came back is no latency table"),
    "another document": ('echo \'{"format": "mpnet-result"}\' > table.json', "what came back is no latency table"),
    "no file": ("exit 0", "what came back is not what mprun wrote"),
    "an error": ("echo 'net.mpnet: of \033[31mnewer format' >&2; exit 2", r"mprun failed there (2): 'net.mpnet: of \x1b[31m"),
    "killed": ("kill -9 $PPID", "mprun was ended there ('lost')"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_mprun_that_fails_gives_one_line_and_nothing_stays(kind: str, host: Loopback, folder: Path, tmp_path: Path) -> None:
    script, message = WRONG[kind]
    with pytest.raises(EngineError) as caught:
        profile(folder, host.board(), write_stand_in(tmp_path, script))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert host.folders == []


def test_another_mprun_under_the_same_name_is_not_taken_as_the_one_that_runs(host: Loopback, tmp_path: Path) -> None:
    """The first one's folder stands there as a killed command leaves it: with a finished run."""
    names: list[str] = []
    for answer in ("first", "second"):
        program = write_stand_in(tmp_path, f'basename "$PWD" >> "$HOME/names"\necho {answer} > table.json')
        contents = host.board().run(program, [], [["--info"]], ["table.json"]).contents
        assert contents == (f"{answer}\n".encode(),)
        names = (host.home / "names").read_text(encoding="utf-8").split()
        (host.home / ".mpnet-board" / names[-1]).mkdir(parents=True)
        (host.home / ".mpnet-board" / names[-1] / "status").write_text("0\n", encoding="utf-8")
        (host.home / ".mpnet-board" / names[-1] / "table.json").write_text("kept\n", encoding="utf-8")
    assert len(set(names)) == 2
    assert host.board().run(program, [], [["--info"]], ["table.json"]).contents == (b"kept\n",)


def test_jobs_run_in_turn_until_one_fails_and_archives_are_unpacked(host: Loopback, tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        member = tarfile.TarInfo("images/1")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"one"))
    files = [BoardFile.of("images-0.tar", content.getvalue())]
    program = write_stand_in(tmp_path, 'cat images/1\necho " $*"\n[ "$2" != "b" ] || exit 1')
    answer = host.board().run(program, files, [["--x", "a"], ["--x", "b"]], ["printed-0", "printed-1"])
    assert (answer.contents, answer.status) == ((b"one --x a\n", b"one --x b\n"), 1)
    failing = write_stand_in(tmp_path, 'echo "$1" >> "$HOME/jobs"\necho why >&2\nexit 2')
    with pytest.raises(EngineError, match=r"mprun failed there \(2\): 'why'"):
        host.board().run(failing, [], [["first"], ["second"]], [])
    assert (host.home / "jobs").read_text(encoding="utf-8") == "first\n"
    assert host.folders == []


def test_a_table_of_another_network_is_refused(host: Loopback, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write_network(tmp_path / "other", text=tiny_cfg())
    program = write_stand_in(tmp_path, f"cp {folder}/table.json table.json")
    with pytest.raises(EngineError, match="is of another network"):
        profile(tmp_path / "other", host.board(), program)


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=touch pwned", "", "a b", "pi@board;reboot", "$(reboot)", "board\n", "a" * 300]
)
def test_what_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no host"):
        Board(name)


def test_no_word_of_a_user_reaches_the_boards_shell(host: Loopback, folder: Path) -> None:
    with pytest.raises(ConfigError, match="is no word that is sent to a board"):
        profile_on_board(folder / "net.cfg", host.board(), program=folder / "net.cfg", isa="neon;reboot", repeats=3)


def test_a_board_that_throttles_is_doubted(folder: Path) -> None:
    answers = {"core": "Cortex-A72", "fastest": "1800000", "clock": "1500000", "heat": "84500", "governor": "performance"}
    state = read_state(answers)
    assert state == BoardState("Cortex-A72", "", "performance", 1800, 1500, 84.5)
    assert state.doubt == "the clock fell to 1500 of 1800 MHz at 84 degrees"
    assert read_state({**answers, "clock": "1800000"}).doubt == ""
    assert read_state({"core": "\x1b[31mred", "clock": "fast"}) == BoardState("[31mred")
    table = read_table(folder / "table.json")
    doubted = replace(table, machine={**table.machine, **describe_state("pi@board", state)})
    assert (doubted.machine["host"], doubted.good) == ("board", False)
    network = read_cfg(folder / "net.cfg")
    with pytest.raises(ConfigError, match="not to be believed: 'the clock fell to 1500 of 1800 MHz"):
        doubted.check(network, ("fp32",))
    doubted.check(network, ("fp32",), 1e6)


def test_which_mprun_a_board_gets_is_said_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="`make mprun-arm` makes it"):
        find_mprun("board", "aarch64")
    arm = tmp_path / "build" / "mprun-arm" / "mprun"
    arm.parent.mkdir(parents=True)
    arm.touch()
    assert find_mprun("board", "aarch64") == Path("build/mprun-arm/mprun")
