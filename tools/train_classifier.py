#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Train the small classifier of the tests on crops of the demo's scenes, and export it as Darknet files.

    python tools/train_classifier.py --out runs/classifier --package

Needs the extra [train]. One seed, one thread and one PyTorch version give one result: the schedule counts epochs.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from demo_training.classifier import SIDE, Classifier, classifier_cfg  # noqa: E402
from demo_training.darknet import write_weights  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from mpnet.demo.scenes import CLASSES  # noqa: E402
from mpnet.detection.preprocess import preprocess  # noqa: E402
from tests.classifier.crops import crops  # noqa: E402

PACKAGE = ROOT / "tests" / "classifier"
SHIFT = 3  # pixels, either way


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the exported files")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "demo", help="folder for drawn crops")
    parser.add_argument("--scenes", type=int, default=3000, help="training scenes, about five crops each")
    parser.add_argument("--val", type=int, default=400, help="validation scenes")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=4e-3, help="highest learning rate of AdamW")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package", action="store_true", help=f"export into {PACKAGE.relative_to(ROOT)} as well")
    return parser.parse_args()


def load_crops(folder: Path, split: str, scenes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Crops as network inputs, (n, 3, SIDE, SIDE), and their classes; drawn on first use."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"all-crops-{split}-{scenes}-{SIDE}.npz"
    if not path.exists():
        labelled = [(label, preprocess(crop, SIDE, SIDE, "crop")[0][0]) for label, crop in crops(split, scenes)]
        np.savez(path, x=np.stack([x for _, x in labelled]).astype(np.float16), label=[label for label, _ in labelled])
    arrays = np.load(path)
    return torch.from_numpy(arrays["x"].astype(np.float32)).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(arrays["label"])


def augment(x: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    """Mirror and shift a batch, and change its colour channels and its brightness, at random."""
    result = torch.empty_like(x)
    padded = F.pad(x, (SHIFT,) * 4, mode="replicate")
    for k in range(len(x)):
        top, left = draw.integers(0, 2 * SHIFT + 1, 2)
        crop = padded[k, list(draw.permutation(3)), top : top + SIDE, left : left + SIDE]
        result[k] = (crop.flip(2) if draw.random() < 0.5 else crop) * float(draw.uniform(0.85, 1.15))
    return result.clamp_(0, 1)


def measure_top1(net: Classifier, x: torch.Tensor, label: torch.Tensor, int8: bool = False) -> float:
    """Percent of the images whose best class is the right one."""
    net.eval()
    with torch.no_grad():
        correct = sum(
            int((net(batch, int8).argmax(1) == label[i : i + 256]).sum())
            for i in range(0, len(x), 256)
            for batch in [x[i : i + 256]]
        )
    return 100 * correct / len(x)


def export(net: Classifier, folder: Path, seen: int) -> None:
    """Write cfg, names and weights of the network to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shapes.cfg").write_text(classifier_cfg(net), encoding="utf-8")
    write_weights(net, folder / "shapes.weights", seen)
    (folder / "shapes.names").write_text("".join(f"{name}\n" for name in CLASSES), encoding="utf-8")


def main() -> None:
    """Run the command."""
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    val, train = load_crops(options.cache, "val", options.val), load_crops(options.cache, "train", options.scenes)
    print(f"{len(train[0])} training and {len(val[0])} validation crops", flush=True)
    net = Classifier(len(CLASSES)).to(memory_format=torch.channels_last)
    print(f"{sum(p.numel() for p in net.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(net.parameters(), options.rate, weight_decay=0.01)
    per_epoch = len(train[0]) // options.batch
    step, steps = 0, options.epochs * per_epoch
    for epoch in range(options.epochs):
        begin, losses = time.process_time(), 0.0
        order = np.random.default_rng([options.seed, 0, epoch]).permutation(len(train[0]))
        net.train()
        for start in range(0, per_epoch * options.batch, options.batch):
            rows = np.sort(order[start : start + options.batch])
            x = augment(train[0][rows], np.random.default_rng([options.seed, 1, step]))
            for group in optimizer.param_groups:
                warm = min(1.0, (step + 1) / 200)
                group["lr"] = options.rate * warm * (0.01 + 0.99 * (1 + math.cos(math.pi * step / steps)) / 2)
            loss = F.cross_entropy(net(x.to(memory_format=torch.channels_last)), train[1][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses, step = losses + loss.item(), step + 1
        print(
            f"epoch {epoch + 1}: loss {losses / per_epoch:.3f}, top-1 {measure_top1(net, *val):.2f}, int8 per tensor (rough) "
            f"{measure_top1(net, *val, int8=True):.2f}, {time.process_time() - begin:.0f} s",
            flush=True,
        )
    for folder in [options.out, *([PACKAGE] if options.package else [])]:
        export(net, folder, steps * options.batch)


if __name__ == "__main__":
    main()
