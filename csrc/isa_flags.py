"""The compiler flags of each C file: what it may use is decided by its name alone. No -march=native anywhere.

Apart from the build itself, so that tests can build C programs where there is no setuptools.
"""

from __future__ import annotations

import os

# File name prefix in csrc/arch/ -> (architecture prefix of the compiler's target, flags).
ISA_FLAGS: dict[str, tuple[str, list[str]]] = {
    "x86_avx2": ("x86_64", ["-mavx2", "-mfma", "-mf16c"]),
    "x86_avx512vnni": ("x86_64", ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl",
                                  "-mavx512dq", "-mavx512vnni"]),
    "x86_avx512": ("x86_64", ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]),
    "arm_neon_fp16": ("aarch64", ["-march=armv8.2-a+fp16"]),
    "arm_neon_dotprod": ("aarch64", ["-march=armv8.2-a+fp16+dotprod"]),
    "arm_neon_i8mm": ("aarch64", ["-march=armv8.2-a+fp16+dotprod+i8mm"]),
    "arm_neon": ("aarch64", ["-march=armv8-a"]),
}
COMMON = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-Wall", "-Wextra"]


def isa_flags(source: str, target: str) -> list[str]:
    """The extra flags of one file. The longest matching prefix wins; a file of another architecture gets none."""
    stem = os.path.basename(source)
    for prefix in sorted(ISA_FLAGS, key=len, reverse=True):
        if stem.startswith(prefix):
            architecture, flags = ISA_FLAGS[prefix]
            return flags if target.startswith(architecture) else []
    return []
