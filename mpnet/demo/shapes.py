# SPDX-License-Identifier: MIT
"""The ten classes as polygons in a square of about +-1000 units, and plain shapes for the clutter.

A shape is a tuple of layers; a layer is a colour index and the parts painted with it; a part is a list of
rings filled by the even-odd rule. The first layer is the silhouette, which decides the box.
"""

from __future__ import annotations

from mpnet.demo.raster import ONE, TURN, cosine, sine

Ring = tuple[tuple[int, int], ...]
Part = tuple[Ring, ...]
Layer = tuple[int, tuple[Part, ...]]
Shape = tuple[Layer, ...]


def _arc(cx: int, cy: int, radius: int, start: int, stop: int, steps: int) -> Ring:
    """Return the points of a circle from angle start to stop (1/TURN turns), both ends included."""
    angles = [start + (stop - start) * k // steps for k in range(steps + 1)]
    return tuple((cx + radius * cosine(a) // ONE, cy + radius * sine(a) // ONE) for a in angles)


def _disc(cx: int, cy: int, radius: int, steps: int = 32) -> Ring:
    return _arc(cx, cy, radius, 0, TURN, steps)[:-1]


def _box(x0: int, y0: int, x1: int, y1: int) -> Ring:
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def _spikes(count: int, outer: int, inner: int) -> Ring:
    """Return a star of `count` points."""
    points = []
    for k in range(2 * count):
        radius = inner if k % 2 else outer
        angle = k * TURN // (2 * count) - TURN // 4
        points.append((radius * cosine(angle) // ONE, radius * sine(angle) // ONE))
    return tuple(points)


def _teeth(count: int, outer: int, inner: int) -> Ring:
    """Return the outline of a gear of `count` teeth."""
    points = []
    for k in range(count):
        base = k * TURN // count
        for radius, offset in ((inner, 0), (outer, 24), (outer, 62), (inner, 86)):
            angle = base + offset
            points.append((radius * cosine(angle) // ONE, radius * sine(angle) // ONE))
    return tuple(points)


def _solid(*parts: Part) -> Shape:
    return ((0, parts),)


_ARROW: Ring = ((-1000, -230), (120, -230), (120, -680), (1000, 0), (120, 680), (120, 230), (-1000, 230))
_DOUBLE: Ring = (
    (-1000, 0), (-340, -640), (-340, -230), (340, -230), (340, -640),
    (1000, 0), (340, 640), (340, 230), (-340, 230), (-340, 640),
)  # fmt: skip
_CROSS: Ring = (
    (-300, -1000), (300, -1000), (300, -300), (1000, -300), (1000, 300), (300, 300),
    (300, 1000), (-300, 1000), (-300, 300), (-1000, 300), (-1000, -300), (-300, -300),
)  # fmt: skip
# Outer circle from 50 to 310 degrees; the inner circle through the same two tips has its centre 400 to the
# right, radius 804, and meets them at 72.4 degrees.
_CRESCENT: Ring = _arc(0, 0, 1000, 142, 882, 24) + _arc(400, 0, 804, 818, 206, 18)[1:-1]
_TRIANGLE: Ring = ((0, -940), (1000, 800), (-1000, 800))

# Names are part of the packaged model; the order is the class index.
SHAPES: dict[str, Shape] = {
    "arrow": _solid((_ARROW,)),
    "double-arrow": _solid((_DOUBLE,)),
    "star": _solid((_spikes(5, 1000, 430),)),
    "gear": _solid((_teeth(8, 1000, 720), _disc(0, 0, 380, 16))),
    "ring": _solid((_disc(0, 0, 1000, 36), _disc(0, 0, 560, 24))),
    "crescent": _solid((_CRESCENT,)),
    "cross": _solid((_CROSS,)),
    "no-entry": ((0, ((_disc(0, 0, 1000, 36),),)), (1, ((_box(-650, -210, 650, 210),),))),
    "warning": (
        (0, ((_TRIANGLE,),)),
        (1, ((((0, -480), (630, 590), (-630, 590)),),)),
        (0, ((_box(-95, -190, 95, 230),), (_box(-95, 330, 95, 500),))),
    ),
    "key": _solid(
        (_disc(-580, 0, 420, 24), _disc(-580, 0, 190, 16)),
        (_box(-190, -110, 1000, 110),),
        (_box(480, 100, 660, 400),),
        (_box(820, 100, 1000, 440),),
    ),
}

# Classes that stand nearly upright, as signs do; all others lean by up to 30 degrees.
UPRIGHT = frozenset({"no-entry", "warning"})

# Things that are in the image but in no class; some are close to one, so that texture alone does not do.
CLUTTER: tuple[Shape, ...] = (
    _solid((_disc(0, 0, 1000, 32),)),
    _solid((_TRIANGLE,)),
    _solid((_box(-1000, -1000, 1000, 1000),)),
    _solid((_box(-1000, -160, 1000, 160),)),
    _solid((_box(-1000, -160, 1000, 160),)),
    _solid((((-1000, -1000), (-500, -1000), (-500, 500), (1000, 500), (1000, 1000), (-1000, 1000)),)),
    _solid((((-1000, -300), (200, -1000), (1000, 100), (300, 900), (-700, 700)),)),
    _solid((((-1000, 1000), (-700, 0), (0, -700), (1000, -1000), (900, -650), (200, -300), (-500, 400)),)),
)
