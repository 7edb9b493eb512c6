# SPDX-License-Identifier: MIT
"""The inner loops of compiled kernels, and what a model of a core says of them.

A loop is found in the object file itself, so what is counted and modelled is what runs, whoever wrote it, a compiler or we.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ITERATIONS = 200


@dataclass(frozen=True)
class Isa:
    """How an architecture's objects are read. Regular expressions over one instruction of objdump's text.

    branch: a jump, its target the first group.  waste: what a multiplying loop needs none of, by name.
    stacked: a vector stored to the stack.
    """

    objdump: str
    branch: str
    comment: str
    waste: dict[str, str]
    model: tuple[str, ...]
    stacked: str


X86 = Isa(
    "objdump",
    r"j\w+\s+([0-9a-f]+) <",
    r"\s*#.*",
    {
        "vectors stored": r"v\w+\s+%[xyz]mm\d+,[^%]*\(",
        "vectors copied": r"vmov\w+\s+%[yz]mm\d+,%[yz]mm\d+$",
        "moves from vector to general registers": r"v(mov[dq]|pextr\w)\s.*%[re]?\w+$(?<!mm\d)(?<!mm\d\d)",
    },
    ("-mtriple=x86_64-linux-gnu",),
    r"v\w+\s+%[xyz]mm\d+,[^%]*\(%rsp",
)
ARM = Isa(
    "aarch64-linux-gnu-objdump",
    r"(?:b\.?\w*|cbn?z\s+\w+,|tbn?z\s+\w+, #\w+,)\s+([0-9a-f]+) <",
    r"\s*//.*",
    {"accesses to the stack": r".*\[sp", "vectors stored": r"st[rp1]\w*\s+\{?[qvd]\d"},
    ("-mtriple=aarch64-linux-gnu", "-mattr=+dotprod,+i8mm,+fullfp16"),
    r"st[rp]\s+[qvd]\d.*\[sp",
)


@dataclass(frozen=True)
class Loop:
    """An innermost loop: its instructions, the last of them the branch back.

    stacked: vectors that the whole function stores to the stack.
    """

    function: str
    instructions: tuple[str, ...]
    stacked: int

    def count(self, pattern: str) -> int:
        """Count the instructions that begin with `pattern`, a regular expression."""
        return sum(bool(re.match(pattern, text)) for text in self.instructions)


def innermost_loops(isa: Isa, obj: Path) -> list[Loop]:
    """Return all innermost loops of an object file; a loop is what lies between a branch back and its target."""
    command = [isa.objdump, "-d", "--no-show-raw-insn", str(obj)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    loops = []
    for function_text in re.split(r"\n\n", listing):
        head = re.match(r"[0-9a-f]+ <([^>]+)>:\n", function_text.lstrip())
        if not head:
            continue
        code = [
            (int(address, 16), text.strip()) for address, text in re.findall(r"^\s*([0-9a-f]+):\t(.+)$", function_text, re.M)
        ]
        index = {address: number for number, (address, _) in enumerate(code)}
        stacked = sum(bool(re.match(isa.stacked, text)) for _, text in code)
        back = []
        for number, (address, text) in enumerate(code):
            jump = re.match(isa.branch, text)
            if jump and int(jump.group(1), 16) <= address and int(jump.group(1), 16) in index:
                back.append((index[int(jump.group(1), 16)], number))
        for first, last in back:
            if not any(first <= f and t <= last and (f, t) != (first, last) for f, t in back):
                body = tuple(re.sub(isa.comment, "", text) for _, text in code[first : last + 1])
                loops.append(Loop(head.group(1), body, stacked))
    return loops


def hottest(loops: list[Loop], function: str, multiply: str, multiplies: int) -> list[Loop]:
    """Return the loops of functions whose names begin so, with that many multiplications: one per variant of the function.

    Raises: LookupError where there is none.
    """
    matching = [loop for loop in loops if loop.function.startswith(function) and loop.count(multiply) == multiplies]
    if not matching:
        counts = sorted({loop.count(multiply) for loop in loops if loop.function.startswith(function)})
        raise LookupError(f"{function} has no loop with {multiplies} of {multiply}, only with {counts}")
    return matching


def modelled_cycles(mca: str, isa: Isa, core: str, loop: Loop) -> float:
    """Return cycles an iteration on a core, by llvm-mca's model of it."""
    back = re.sub(r"[0-9a-f]+ <.*", ".Lloop", loop.instructions[-1])
    body = [*loop.instructions[:-1], back]
    command = [mca, *isa.model, f"-mcpu={core}", f"-iterations={ITERATIONS}"]
    completed = subprocess.run(command, input=".Lloop:\n" + "\n".join(body) + "\n", capture_output=True, text=True, check=False)
    cycles = re.search(r"Total Cycles:\s+(\d+)", completed.stdout)
    if not cycles:
        raise RuntimeError(f"{mca} -mcpu={core} says nothing of this loop: {completed.stderr.strip()[:300]}")
    return int(cycles.group(1)) / ITERATIONS
