"""The inner loops of compiled kernels, and what a model of a core says of them: cycles an iteration, spills.

A loop is found in the object file itself, so what is modelled is what runs, whoever wrote it, a compiler or we.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ITERATIONS = 200


@dataclass(frozen=True)
class Loop:
    """An innermost loop: its instructions, the last of them the branch back."""

    function: str
    instructions: tuple[str, ...]

    def count(self, mnemonic: str) -> int:
        """Instructions that begin with `mnemonic`, a regular expression."""
        return sum(bool(re.match(mnemonic, text)) for text in self.instructions)

    @property
    def spills(self) -> int:
        """Accesses to the stack, and stores of vectors: a multiplying loop needs neither."""
        return self.count(r".*\[sp|st[rp1]\w*\s+\{?[qvd]\d")


def innermost_loops(objdump: str, obj: Path) -> list[Loop]:
    """All innermost loops of an object file; a loop is what lies between a branch back and its target."""
    listing = subprocess.run([objdump, "-d", "--no-show-raw-insn", str(obj)], capture_output=True, text=True, check=True).stdout
    loops = []
    for part in re.split(r"\n\n", listing):
        head = re.match(r"[0-9a-f]+ <([^>]+)>:\n", part.lstrip())
        if not head:
            continue
        code = [(int(at, 16), text.strip()) for at, text in re.findall(r"^\s*([0-9a-f]+):\t(.+)$", part, re.M)]
        index = {at: number for number, (at, _) in enumerate(code)}
        back = []
        for number, (at, text) in enumerate(code):
            jump = re.match(r"(?:b\.?\w*|cbn?z\s+\w+,|tbn?z\s+\w+, #\w+,)\s+([0-9a-f]+) <", text)
            if jump and int(jump.group(1), 16) <= at and int(jump.group(1), 16) in index:
                back.append((index[int(jump.group(1), 16)], number))
        for first, last in back:
            if not any(first <= f and t <= last and (f, t) != (first, last) for f, t in back):
                loops.append(Loop(head.group(1), tuple(re.sub(r"\s*//.*", "", text) for _, text in code[first:last + 1])))
    return loops


def hottest(loops: list[Loop], function: str, multiply: str) -> Loop:
    """The loop of a function with the most multiplications; the shortest of those."""
    own = [loop for loop in loops if loop.function.startswith(function) and loop.count(multiply)]
    if not own:
        raise LookupError(f"{function} has no loop with {multiply}")
    most = max(loop.count(multiply) for loop in own)
    return min((loop for loop in own if loop.count(multiply) == most), key=lambda loop: len(loop.instructions))


def modelled_cycles(mca: str, core: str, loop: Loop) -> float:
    """Cycles an iteration on a core, by llvm-mca's model of it."""
    back = re.sub(r"[0-9a-f]+ <.*", ".Lloop", loop.instructions[-1])
    body = [*loop.instructions[:-1], back]
    command = [mca, "-mtriple=aarch64-linux-gnu", f"-mcpu={core}", "-mattr=+dotprod,+i8mm,+fullfp16",
               f"-iterations={ITERATIONS}"]
    run = subprocess.run(command, input=".Lloop:\n" + "\n".join(body) + "\n", capture_output=True, text=True, check=False)
    cycles = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    if not cycles:
        raise RuntimeError(f"{mca} -mcpu={core} says nothing of this loop: {run.stderr.strip()[:300]}")
    return int(cycles.group(1)) / ITERATIONS
