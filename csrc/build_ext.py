# SPDX-License-Identifier: MIT
"""Compiles each C file with the flags of its ISA level (isa_flags.py), so that one wheel holds every level; on all cores."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from isa_flags import COMMON, isa_flags
from setuptools.command.build_ext import build_ext


class BuildExt(build_ext):
    """build_ext with flags per file."""

    def run(self) -> None:
        self.for_developers = bool(self.inplace)  # setuptools clears it while it builds
        super().run()

    def stripped(self, extra: list[str]) -> list[str]:
        """Wheels go without debug symbols, which are most of their size; builds in place, for developers, keep them."""
        return ["-Wl,--strip-all"] if sys.platform.startswith("linux") and not self.for_developers and not extra else []

    def build_extensions(self) -> None:
        compiler = self.compiler
        command = shlex.split(os.environ["CC"]) if os.environ.get("CC") else list(compiler.compiler_so[:1])
        probe = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, check=False)
        target = probe.stdout.strip().replace("arm64", "aarch64")
        extra = shlex.split(os.environ.get("MPNET_CFLAGS", ""))
        for extension in self.extensions:
            # Python asks for -g, with which gcc takes nearly twice as long. Lines and functions are all that a debugger or perf
            # can show of optimised kernels, and what is stripped needs none.
            debug = "-g1" if self.for_developers else "-g0"
            extension.extra_compile_args = [*(extension.extra_compile_args or []), debug, *COMMON, "-pthread", *extra]
            extension.extra_link_args = [*(extension.extra_link_args or []), "-pthread", *extra, *self.stripped(extra), "-lm"]
        one, link = compiler._compile, compiler.link_shared_object
        compiled: list[Future[None]] = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:

            def compile_one(obj: str, src: str, ext: str, cc_args: Any, extra_postargs: Any, pp_opts: Any) -> None:
                flags = [*extra_postargs, *isa_flags(src, target)]
                compiled.append(pool.submit(one, obj, src, ext, cc_args, flags, pp_opts))

            def link_all(*arguments: Any, **options: Any) -> None:
                for done in compiled:
                    done.result()
                link(*arguments, **options)

            compiler._compile, compiler.link_shared_object = compile_one, link_all
            super().build_extensions()
