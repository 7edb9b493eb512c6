# SPDX-License-Identifier: MIT
"""Small networks for sweeps, as cfg text: shapes that matter to sharing, cheap to run."""

from __future__ import annotations

from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.network import NetworkSpec


def conv(filters: int, size: int = 3, stride: int = 1, activation: str = "leaky") -> str:
    normalize = "batch_normalize=1\n" if activation != "linear" else ""
    return f"[convolutional]\n{normalize}filters={filters}\nsize={size}\nstride={stride}\npad=1\nactivation={activation}\n"


def pool(stride: int = 2) -> str:
    return f"[maxpool]\nsize=2\nstride={stride}\n"


def yolo(mask: str, classes: int = 3) -> str:
    return f"[yolo]\nmask={mask}\nanchors=4,6, 8,8, 12,18, 20,16, 24,30, 40,44\nclasses={classes}\nnum=6\n"


def parse(width: int, *sections: str) -> NetworkSpec:
    return parse_cfg(f"[net]\nwidth={width}\nheight={width}\nchannels=3\n" + "\n".join(sections), "test.cfg")


def tiny_yolo() -> NetworkSpec:
    """Return two heads that share a trunk of three convolutions; six convolutions after and beside it."""
    return parse(
        32,
        conv(4),
        pool(),
        conv(8),
        pool(),
        conv(8),
        conv(24, 1, 1, "linear"),
        yolo("3,4,5"),
        "[route]\nlayers=-3\n",
        conv(4, 1),
        "[upsample]\nstride=2\n",
        "[route]\nlayers=-1,2\n",
        conv(24, 1, 1, "linear"),
        yolo("0,1,2"),
    )


def branches() -> NetworkSpec:
    """Return parallel branches joined by a route and a shortcut, with layers that are no ancestors of later ones."""
    return parse(
        16,
        conv(4),
        conv(4),
        "[route]\nlayers=-2\n",
        conv(4),
        "[route]\nlayers=-1,-3\n",
        conv(4, 1),
        "[shortcut]\nfrom=-3\nactivation=linear\n",
        conv(24, 1, 1, "linear"),
        yolo("3,4,5"),
        "[route]\nlayers=1\n",
        conv(4, 3, 2),
        "[route]\nlayers=-1\n",
        conv(24, 1, 1, "linear"),
        yolo("0,1,2"),
    )


def yolov3_tiny(size: int = 416, classes: int = 80) -> NetworkSpec:
    """Return the published topology: 13 convolutions."""
    trunk = [section for filters in (16, 32, 64, 128, 256) for section in (conv(filters), pool())]
    return parse(
        size,
        *trunk,
        conv(512),
        pool(1),
        conv(1024),
        conv(256, 1),
        conv(512),
        conv(3 * (5 + classes), 1, 1, "linear"),
        yolo("3,4,5", classes),
        "[route]\nlayers=-4\n",
        conv(128, 1),
        "[upsample]\nstride=2\n",
        "[route]\nlayers=-1,8\n",
        conv(256),
        conv(3 * (5 + classes), 1, 1, "linear"),
        yolo("1,2,3", classes),
    )
