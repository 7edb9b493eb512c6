# SPDX-License-Identifier: MIT
"""Instructions that mpnet and LiteRT with XNNPACK execute on emulated arm64 CPUs: of a network, and of layers by kind.

    python benchmarks/arm_counts.py ROOT FOLDER CFG [WEIGHTS]

ROOT: made by tests/arm/root.sh. FOLDER: for all that is written and downloaded. Needs what tests/arm/run.sh needs, and
`make mprun-arm`. One thread; ranges are calibrated on random images, and both read the same integers. A pass is the difference
of runs with more and with fewer passes; a kind of layer that of networks with more and with fewer of them, so that neither
start-up nor conversions at the ends count. A file's last layers are fp32 in LiteRT, since mpnet's give fp32 of whole sums.

XNNPACK chooses kernels by the CPU's features (the emulator's) and its name in /proc/cpuinfo, which is the host's under
emulation: here the emulated root has a file of the CPU in its place.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
sys.path[:0] = [str(FOLDER), str(ROOT)]

from peer_models import open_network, options_of, write_models  # noqa: E402

from mpnet.engine.assign import assign  # noqa: E402
from mpnet.export import Configuration, export  # noqa: E402

# Kernel table of mpnet, -cpu of the emulator, part number of Arm's core (of the last: Cortex-A710, which has SMMLA).
CPUS = (("neon", "cortex-a57", "0xd07"), ("neon_dotprod", "cortex-a76", "0xd0b"), ("neon_i8mm", "max,sve=off", "0xd47"))
PACKAGES = ("ai-edge-litert==2.3.0", "backports.strenum", "flatbuffers", "tqdm", "typing-extensions", "protobuf", "ml_dtypes")
FEWER_PASSES, MORE_PASSES = 2, 5
"""Passes of the two runs."""
LITERT = """
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(model_path=sys.argv[1], num_threads=1)
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.load(sys.argv[2]))
for _ in range(int(sys.argv[3])):
    interpreter.invoke()
"""
WIDE = ((144, 1, 1, 1),)
POINTWISE = (*WIDE, (24, 1, 1, 1))
DEPTHWISE = ((144, 3, 1, 144),)
# Kind of layer: height and channels of the input, and (filters, size, stride, groups) of the layers of both networks.
KINDS = {
    "1x1, 24 to 144 and back, 40x40": ((40, 24), POINTWISE, POINTWISE * 2),
    "depthwise 3x3 of 144, 40x40": ((40, 24), WIDE + DEPTHWISE, WIDE + DEPTHWISE * 2),
    "image, 3x3/2 of 3 to 8 at 320x320, 1x1 of 8 to 8": ((320, 3), (), ((8, 3, 2, 1), (8, 1, 1, 1))),
}


def cfg_of(shape: tuple[int, int], layers: tuple[tuple[int, int, int, int], ...], activation: str) -> str:
    """Return the cfg of a network of these layers."""
    text = f"[net]\nheight={shape[0]}\nwidth={shape[0]}\nchannels={shape[1]}\n"
    for filters, size, stride, groups in layers:
        text += f"\n[convolutional]\nfilters={filters}\nsize={size}\nstride={stride}\npad=1\ngroups={groups}\n"
        text += f"activation={activation}\n"
    return text


def write_bundle(folder: Path, cfg: str, weights: Path | None = None) -> int:
    """Write the models of both programs; return multiply-accumulates."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.cfg").write_text(cfg, encoding="utf-8")
    if weights is not None:
        shutil.copy(weights, folder / "net.weights")
    prepared = open_network(folder)
    random = np.random.default_rng(1)
    np.save(folder / "image.npy", random.random((1, *prepared.network.in_shape), np.float32))
    np.save(folder / "calibration.npy", random.random((8, *prepared.network.in_shape), np.float32))
    write_models(folder)
    for name, precision in (("net", "fp32"), ("net-int8", "int8")):
        options = options_of(prepared, folder, {"mode": "affine"} if precision == "int8" else None)
        configuration = Configuration.from_prepared(prepared, assign(prepared.network, precision), options)
        exported = export("bundle", configuration, "", {"no_profile": True})
        (folder / f"{name}.mpnet").write_bytes(exported.files[".mpnet"])
    return sum(layer.macs for layer in prepared.network.convolutions)


class Emulated:
    """One CPU, with the instruction counter."""

    def __init__(self, root: Path, folder: Path, cpu: str, cpu_part: str) -> None:
        self.root, self.folder, self.cpu = folder / f"root-{cpu_part}", folder, cpu
        (self.root / "proc").mkdir(parents=True, exist_ok=True)
        for entry in root.iterdir():
            if entry.name not in ("proc", "sys") and not (self.root / entry.name).exists():
                (self.root / entry.name).symlink_to(entry.resolve())
        cores = self.root / "sys/devices/system/cpu"
        cores.mkdir(parents=True, exist_ok=True)
        for name in ("possible", "present"):
            (cores / name).write_text("0\n")
        (self.root / "proc/cpuinfo").write_text(
            "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\n"
            f"CPU part\t: {cpu_part}\nCPU revision\t: 0\n\n"
        )

    def count(self, *command: str) -> int:
        """Instructions of a process."""
        counts = self.folder / f"{self.root.name}.txt"
        process = subprocess.run(
            [
                *("qemu-aarch64", "-cpu", self.cpu, "-L", str(self.root)),
                *("-plugin", f"{self.folder / 'plugin.so'},out={counts}"),
                *("-E", f"PYTHONPATH={self.root / 'opt/site'}:{self.folder / 'site'}", "-E", "PYTHONHASHSEED=0"),
                *("-E", "OPENBLAS_NUM_THREADS=1", "-E", "OPENBLAS_CORETYPE=ARMV8"),
                *command,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        total = re.search(r"process total=(\d+)", counts.read_text()) if not process.returncode else None
        if total is None:
            raise SystemExit(f"{' '.join(command)}: {(process.stderr.strip() or str(process.returncode)).splitlines()[-1]}")
        return int(total[1])

    def mpnet(self, model: Path, table: str) -> float:
        """Instructions of a pass of a bundle: a repeat is a pass step by step and one as a whole."""
        fewer, more = (
            self.count(
                *(str(ROOT / "build/mprun-arm/mprun"), str(model), "--bench", "--isa", table, "--threads", "1"),
                *("--repeats", str(repeats)),
            )
            for repeats in (1, 2)
        )
        return (more - fewer) / 2

    def litert(self, model: Path) -> float:
        """Instructions of a pass of a TensorFlow Lite file."""
        fewer, more = (
            self.count(
                *(str(self.root / "usr/bin/python3.11"), str(self.folder / "litert.py"), str(model)),
                *(str(model.parent / "image.npy"), str(passes)),
            )
            for passes in (FEWER_PASSES, MORE_PASSES)
        )
        return (more - fewer) / (MORE_PASSES - FEWER_PASSES)


def main() -> None:
    """Read the command line, print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("root", "folder", "cfg"):
        parser.add_argument(name, type=Path)
    parser.add_argument("weights", type=Path, nargs="?")
    args = parser.parse_args()
    root, folder = args.root.resolve(), args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "litert.py").write_text(LITERT, encoding="utf-8")
    plugin = ("gcc", "-O2", "-fPIC", "-shared", str(ROOT / "tests/counts/plugin.c"), "-o", str(folder / "plugin.so"))
    subprocess.run(plugin, check=True)
    if not (folder / "site").exists():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(folder / "site"),
            "--only-binary=:all:",
        ]
        target = ["--implementation", "cp", "--python-version", "3.11", "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
        platforms = [f"--platform=manylinux{name}_aarch64" for name in ("2014", "_2_17", "_2_27", "_2_28")]
        subprocess.run([*pip, *target, *platforms, *PACKAGES], check=True)
    # What is counted: folders of networks that count once, and once less, and their multiply-accumulates.
    cases = {
        args.cfg.stem: (
            {folder / "whole": 1},
            write_bundle(folder / "whole", args.cfg.read_text(encoding="utf-8"), args.weights),
        )
    }
    for activation in ("leaky", "relu"):
        for kind, (shape, subtracted, added) in KINDS.items():
            networks, macs = {}, 0
            for layers, sign in ((subtracted, -1), (added, 1)):
                if layers:
                    path = folder / f"{len(cases)}-{len(layers)}"
                    networks[path] = sign
                    macs += sign * write_bundle(path, cfg_of(shape, layers, activation))
            cases[f"{kind}, {activation}"] = (networks, macs)
    print("of,precision,CPU,mpnet's table,mpnet M,XNNPACK M,mpnet per MAC,XNNPACK per MAC,ratio")
    for precision, name in (("int8", "net-int8"), ("fp32", "net")):
        for table, cpu, cpu_part in CPUS[: 1 if precision == "fp32" else None]:
            emulated = Emulated(root, folder, cpu, cpu_part)
            for case, (networks, macs) in cases.items():
                ours = sum(sign * emulated.mpnet(path / f"{name}.mpnet", table) for path, sign in networks.items())
                theirs = sum(sign * emulated.litert(path / f"{name}.tflite") for path, sign in networks.items())
                figures = f"{ours / 1e6:.2f},{theirs / 1e6:.2f},{ours / macs:.3f},{theirs / macs:.3f},{ours / theirs:.2f}"
                print(f'"{case}",{precision},{cpu.split(",")[0]},{table},{figures}', flush=True)


if __name__ == "__main__":
    main()
