#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Train the embedded demo network and export it as Darknet files.

    python tools/train_demo.py --out runs/demo            # train; run again to resume
    python tools/train_demo.py --out runs/demo --evaluate # figures of the best checkpoint
    python tools/train_demo.py --out runs/demo --package  # best checkpoint into mpnet/demo/data

Needs the extra [train]. One seed, one thread count and one PyTorch version give one result: the schedule
counts steps, never seconds.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

# Tensors of many megabytes come and go each step; without these glibc returns them to the system every time
# and the page faults cost more than the arithmetic. They only act when set before the process starts.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_TOP_PAD_": str(256 << 20)}
if __name__ == "__main__" and any(os.environ.get(k) != v for k, v in _MALLOC.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **_MALLOC})

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from demo_training.darknet import cfg_text, write_weights  # noqa: E402
from demo_training.data import augmented, cached, fit_anchors, resized  # noqa: E402
from demo_training.loss import detection_loss  # noqa: E402
from demo_training.network import MASKS, TinyYolo, convolve_int8  # noqa: E402
from demo_training.quality import average_precision  # noqa: E402

from mpnet.demo.scenes import CLASSES, SIZE  # noqa: E402

WARM_UP = 300  # steps
EMA_DECAY = 0.999
SMALL_SIDE = 128  # pixels; a multiple of the coarse stride 32
LAST_RATE = 0.01  # of the first
POOLED = (0, 1, 2, 3, 5)  # convolutions before a maxpool: their batch norm factors must stay positive


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train the embedded demo network.")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints, log and exported files")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "demo", help="folder for rendered scenes")
    parser.add_argument("--scenes", type=int, default=8000, help="training scenes")
    parser.add_argument("--val", type=int, default=300, help="validation scenes")
    parser.add_argument("--steps", type=int, default=8000, help="training steps")
    parser.add_argument("--decay-from", type=int, default=4500, help="step from which the learning rate falls")
    parser.add_argument("--small-until", type=int, default=3000, help=f"step until which images are {SMALL_SIDE} pixels")
    parser.add_argument("--stop-at", type=int, default=None, help="leave after this step (for a pilot)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate of AdamW")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=1000, help="steps between evaluations and checkpoints")
    parser.add_argument("--evaluate", action="store_true", help="only evaluate the best checkpoint")
    parser.add_argument("--package", action="store_true", help="only export the best checkpoint into the package")
    return parser.parse_args()


def learning_rate(step: int, options: argparse.Namespace) -> float:
    """Return the rate of a step: a linear rise, the highest rate, and a cosine fall from --decay-from on."""
    if step < WARM_UP:
        return float(options.rate * (step + 1) / WARM_UP)
    progress = (step - options.decay_from) / max(options.steps - options.decay_from, 1)
    fall = (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0))) / 2
    return float(options.rate * (LAST_RATE + (1 - LAST_RATE) * fall))


def follow(average: TinyYolo, net: TinyYolo, step: int) -> None:
    """Move the averaged weights and statistics towards the current ones."""
    decay = min(EMA_DECAY, (1 + step) / (10 + step))
    with torch.no_grad():
        for a, b in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
            if a.dtype.is_floating_point:
                a.lerp_(b, 1 - decay)


def save(value: dict[str, Any], path: Path) -> None:
    """Write a value so that the file appears whole or not at all."""
    partial = path.with_suffix(".partial")
    torch.save(value, partial)
    os.replace(partial, path)


def export(net: TinyYolo, anchors: list[tuple[float, float]], folder: Path, seen: int) -> None:
    """Write demo.cfg, demo.weights, demo.names and SHA256SUMS."""
    folder.mkdir(parents=True, exist_ok=True)
    widths = [block.conv.out_channels for block in net.blocks]
    (folder / "demo.cfg").write_text(cfg_text(widths, anchors, len(CLASSES)), encoding="utf-8")
    write_weights(net, folder / "demo.weights", seen)
    (folder / "demo.names").write_text("".join(f"{name}\n" for name in CLASSES), encoding="utf-8")
    names = [n for n in ("demo.cfg", "demo.names", "demo.weights", "demo.yaml") if (folder / n).exists()]
    sums = "".join(f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in names)
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")


class Training:
    """Everything that a checkpoint holds, and the loop over it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)
        jobs = max(os.cpu_count() or 1, 1)
        self.val = cached(options.cache, "val", options.val, jobs)
        self.train = cached(options.cache, "train", options.scenes, jobs)
        self.anchors = fit_anchors(self.train[1])
        self.anchor_tensor = torch.tensor(self.anchors)
        self.net = TinyYolo(len(CLASSES)).to(memory_format=torch.channels_last)
        self.average = copy.deepcopy(self.net)
        decayed = [p for p in self.net.parameters() if p.ndim > 1]
        undecayed = [p for p in self.net.parameters() if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.01}, {"params": undecayed, "weight_decay": 0.0}], options.rate
        )
        self.step, self.best = 0, -2.0
        options.out.mkdir(parents=True, exist_ok=True)
        checkpoint = options.out / "last.pt"
        if checkpoint.exists():
            state = torch.load(checkpoint, weights_only=True)
            self.net.load_state_dict(state["net"])
            self.average.load_state_dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.best = state["step"], state["best"]
            self.say(f"resumed at step {self.step}")

    def say(self, line: str) -> None:
        """Print a line and append it to the log."""
        print(line, flush=True)
        with (self.options.out / "train.log").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch of one step; it depends on the seed and the step alone."""
        size, count = self.options.batch, len(self.train[0])
        per_epoch = count // size
        epoch, position = divmod(step, per_epoch)
        order = np.random.default_rng([self.options.seed, 0, epoch]).permutation(count)
        rows = np.sort(order[position * size : (position + 1) * size])
        return augmented(self.train[0][rows], self.train[1][rows], np.random.default_rng([self.options.seed, 1, step]))

    def side(self) -> int:
        """Return the side of the images of this step, in pixels."""
        return SMALL_SIDE if self.step < self.options.small_until else SIZE

    def one_step(self) -> tuple[float, float, float]:
        """Train on one batch. Result: the losses."""
        self.net.train()
        images, labels = self.batch(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.options)
        loss, terms = detection_loss(self.net(resized(images, self.side())), labels, self.anchor_tensor, MASKS)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.optimizer.step()
        with torch.no_grad():
            for i in POOLED:
                self.net.blocks[i].norm.weight.clamp_(min=1e-3)
        self.step += 1
        follow(self.average, self.net, self.step)
        return terms

    def evaluate(self) -> float:
        """Say the AP in fp32 and in int8; return that in fp32."""
        fp32 = average_precision(self.average, *self.val, self.anchor_tensor, None, self.side())
        int8 = average_precision(self.average, *self.val, self.anchor_tensor, convolve_int8, self.side())
        self.say(
            f"step {self.step} ({self.side()} px): fp32 AP {fp32['AP']:.4f}"
            f" AP50 {fp32['AP50']:.4f} AP75 {fp32['AP75']:.4f}"
            f" (small {fp32['small']:.3f} medium {fp32['medium']:.3f} large {fp32['large']:.3f})"
            f" | int8 per tensor AP {int8['AP']:.4f} AP50 {int8['AP50']:.4f}"
        )
        self.say("  AP per class: " + " ".join(f"{n} {fp32[str(k)]:.3f}" for k, n in enumerate(CLASSES)))
        return fp32["AP"]

    def checkpoint(self) -> None:
        """Save the state, and the network where it is the best so far."""
        quality = self.evaluate() if self.side() == SIZE else self.evaluate() - 1  # small images rank last
        if quality > self.best:
            self.best = quality
            save({"net": self.average.state_dict(), "step": self.step}, self.options.out / "best.pt")
            export(self.average, self.anchors, self.options.out, self.step * self.options.batch)
        state = {"net": self.net.state_dict(), "average": self.average.state_dict(), "step": self.step}
        save(state | {"optimizer": self.optimizer.state_dict(), "best": self.best}, self.options.out / "last.pt")

    def load_best(self) -> None:
        """Load the best network so far. Raises: SystemExit without one."""
        path = self.options.out / "best.pt"
        if not path.exists():
            raise SystemExit(f"{path}: no checkpoint yet; train first")
        state = torch.load(path, weights_only=True)
        self.average.load_state_dict(state["net"])
        self.step = state["step"]

    def run(self) -> None:
        """Train to the end."""
        options = self.options
        size = sum(p.numel() for p in self.net.parameters())
        self.say(f"{vars(options)}\n{size} parameters, anchors {self.anchors}".replace(f"{ROOT}/", ""))
        end = min(options.steps, options.stop_at or options.steps)
        cpu, start, sums = time.process_time(), self.step, np.zeros(3)
        while self.step < end:
            sums += self.one_step()
            if self.step % 100 == 0 or self.step == end:
                steps = self.step - start
                rate = steps * options.batch / max(time.process_time() - cpu, 1e-9)
                box, thing, kind = sums / steps
                self.say(
                    f"step {self.step}/{options.steps} box {box:.3f} object {thing:.3f} class {kind:.3f}"
                    f" {rate:.0f} images per CPU second"
                )
                cpu, start, sums = time.process_time(), self.step, np.zeros(3)
            if self.step % options.every == 0 or self.step == end:
                self.checkpoint()
                cpu = time.process_time()


def main() -> None:
    """Run the command."""
    training = Training(arguments())
    if training.options.evaluate or training.options.package:
        training.load_best()
        training.evaluate()
        if training.options.package:
            seen = training.step * training.options.batch
            export(training.average, training.anchors, ROOT / "mpnet" / "demo" / "data", seen)
    else:
        training.run()


if __name__ == "__main__":
    main()
