# SPDX-License-Identifier: MIT
"""Labelled images: what every ground-truth format is read into."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, Sequence, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import DataError

MAX_CATEGORIES = 100_000


class _Findings(Protocol):
    """Detections or classifications of a set of images."""

    def of_images(self, positions: NDArray[np.intp], /) -> Any:
        """Return the findings of the images at some positions."""
        ...


F = TypeVar("F", bound=_Findings)


@dataclass(frozen=True)
class ImageRecord:
    """One image.

    width, height:    in pixels, upright where it is turned.
    sha256:           of the file's bytes, hex.
    exif_orientation: what the file says, from 1 (as stored) to 8. is_turned: whether the image is turned so.
    """

    id: int
    path: str
    width: int
    height: int
    sha256: str
    exif_orientation: int = 1
    is_turned: bool = False

    @property
    def orientation(self) -> int:
        """Return the EXIF orientation by which the image is turned, 1 where it is taken as stored."""
        return self.exif_orientation if self.is_turned else 1

    @property
    def content(self) -> str:
        """Return what decides the image's pixels: the digest of the file, and how it is turned."""
        return self.sha256 if self.orientation == 1 else f"{self.sha256} turned {self.orientation}"


@dataclass(frozen=True)
class Category:
    """A class: its index in `Dataset.categories` is the network's class index, id the one in COCO files."""

    id: int
    name: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their boxes; images by rising id, boxes by image (their order within one image is the file's).

    images:      one record per image.
    categories:  in the order of the network's class indices.
    image_index: int32 (boxes,), position in images.
    category:    int32 (boxes,), position in categories.
    box:         float64 (boxes, 4), x, y, width, height in pixels, not clipped.
    area:        float64 (boxes,), square pixels (COCO: of the segment), which decides small, medium or large.
    crowd:       bool (boxes,), regions that neither count nor harm.
    notes:       what a reader should know, for example images without a label file.
    unlabelled:  how many of the images, the last ones, nobody has labelled: agreement is measured on them as well,
                 accuracy is not.
    """

    images: tuple[ImageRecord, ...]
    categories: tuple[Category, ...]
    image_index: NDArray[np.int32]
    category: NDArray[np.int32]
    box: NDArray[np.float64]
    area: NDArray[np.float64]
    crowd: NDArray[np.bool_]
    notes: tuple[str, ...] = field(default=())
    unlabelled: int = 0

    def __post_init__(self) -> None:
        count = len(self.image_index)
        for name, dtype, shape in (
            ("image_index", np.int32, (count,)),
            ("category", np.int32, (count,)),
            ("box", np.float64, (count, 4)),
            ("area", np.float64, (count,)),
            ("crowd", np.bool_, (count,)),
        ):
            values = np.ascontiguousarray(getattr(self, name), dtype=dtype).reshape(shape)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        ids = [image.id for image in self.images]
        if any(a >= b for a, b in pairwise(ids)):
            raise DataError("a dataset's images must come by rising id, each once")
        if len({category.id for category in self.categories}) != len(self.categories):
            raise DataError("a dataset's category ids must differ")
        if count and (
            np.diff(self.image_index).min(initial=0) < 0 or self.image_index[0] < 0 or self.image_index[-1] >= len(self.images)
        ):
            raise DataError("a dataset's boxes must come by image, with indices of its images")
        if not 0 <= self.unlabelled <= len(self.images) or (count and self.image_index[-1] >= self.labelled_count):
            raise DataError("a dataset's boxes must be of its labelled images")
        if count and (self.category.min() < 0 or self.category.max() >= len(self.categories)):
            raise DataError("a dataset's boxes must have indices of its categories")

    @staticmethod
    def of(
        images: Sequence[ImageRecord],
        categories: Sequence[Category],
        objects: Sequence[tuple[int, int, Sequence[float], float, bool]],
        notes: Sequence[str] = (),
    ) -> Dataset:
        """Build a data set from rows (image position, category position, box, area, crowd), ordered by image here."""
        ordered = sorted(objects, key=lambda labelled_object: labelled_object[0])  # stable: within an image the order stays
        return Dataset(
            tuple(images),
            tuple(categories),
            np.array([labelled_object[0] for labelled_object in ordered], dtype=np.int32),
            np.array([labelled_object[1] for labelled_object in ordered], dtype=np.int32),
            np.array([labelled_object[2] for labelled_object in ordered], dtype=np.float64).reshape(-1, 4),
            np.array([labelled_object[3] for labelled_object in ordered], dtype=np.float64),
            np.array([labelled_object[4] for labelled_object in ordered], dtype=bool),
            tuple(notes),
        )

    @staticmethod
    def labelled(
        images: Sequence[ImageRecord], categories: Sequence[Category], labels: Sequence[int], notes: Sequence[str] = ()
    ) -> Dataset:
        """Return the images of one class each, as a classifier needs them: the label is a box around the whole image.

        labels: for each image a position in categories.
        """
        objects = [
            (position, label, (0, 0, image.width, image.height), float(image.width * image.height), False)
            for position, (image, label) in enumerate(zip(images, labels, strict=True))
        ]
        return Dataset.of(images, categories, objects, notes)

    @property
    def labelled_count(self) -> int:
        """Count the images that have labels, which are the first ones."""
        return len(self.images) - self.unlabelled

    def without_unlabelled(self) -> Dataset:
        """Return the labelled images alone."""
        return replace(self, images=self.images[: self.labelled_count], unlabelled=0)

    def of_labelled(self, findings: F) -> F:
        """Return the part of `findings`, which are of all images, that is of the labelled ones."""
        labelled: F = findings.of_images(np.arange(self.labelled_count)) if self.unlabelled else findings
        return labelled

    def with_unlabelled(self, images: Sequence[ImageRecord], limit: int | None = None) -> Dataset:
        """Return the data set with the first unlabelled images behind all others. limit: how many, None: all.

        Those that are among the others already are left out, and the notes say so.
        """
        digests = {image.sha256 for image in self.images}
        added: list[ImageRecord] = []
        repeated_count = 0
        for image in images:
            if len(added) == limit:
                break
            if image.sha256 in digests:
                repeated_count += 1
            else:
                digests.add(image.sha256)
                added.append(image)
        notes = []
        if repeated_count:
            notes.append(f"{repeated_count} of {len(images)} unlabelled images are there already and count once")
        first = 1 + max((image.id for image in self.images), default=0)
        numbered = tuple(replace(image, id=first + number) for number, image in enumerate(added))
        return replace(
            self, images=self.images + numbered, notes=(*self.notes, *notes), unlabelled=self.unlabelled + len(added)
        )

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        """Return int32 (labelled images,): the class of each. Raises: DataError when one has none or several."""
        if not np.array_equal(self.image_index, np.arange(self.labelled_count)):
            raise DataError("a classifier needs images of one class each; use data.format imagefolder or list")
        return self.category

    @property
    def names(self) -> tuple[str, ...]:
        """Return the class names by class index."""
        return tuple(category.name for category in self.categories)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of images and labels; file names and folders do not count.

        Hashed text, one line each, in this order: every category (id, name), every image (id, width, height, digest
        of its bytes, and how it is turned if it is), how many images have no labels if some have none, every box (image
        index, category index, x, y, width, height, area as hexadecimal floats, crowd).
        """
        text = hashlib.sha256(b"mpnet-dataset-1\n")
        for category in self.categories:
            text.update(f"category {category.id} {json.dumps(category.name)}\n".encode())
        for image in self.images:
            text.update(f"image {image.id} {image.width} {image.height} {image.content}\n".encode())
        if self.unlabelled:
            text.update(f"unlabelled {self.unlabelled}\n".encode())
        for index, category_index, box, area, crowd in zip(
            self.image_index.tolist(),
            self.category.tolist(),
            self.box.tolist(),
            self.area.tolist(),
            self.crowd.tolist(),
            strict=True,
        ):
            numbers = " ".join(float(value).hex() for value in (*box, area))
            text.update(f"box {index} {category_index} {numbers} {int(crowd)}\n".encode())
        return text.hexdigest()

    @cached_property
    def sizes(self) -> NDArray[np.float32]:
        """Return the width and height of every image in pixels, float32 (images, 2)."""
        return np.array([(image.width, image.height) for image in self.images], dtype=np.float32).reshape(-1, 2)

    def subset(self, positions: Sequence[int]) -> Dataset:
        """Return the images at the given positions (each once, any order) with their boxes, as a dataset of its own.

        Raises: DataError when a position does not exist or comes twice.
        """
        sorted_positions = sorted(int(position) for position in positions)
        if len(set(sorted_positions)) != len(sorted_positions) or (
            sorted_positions and not 0 <= sorted_positions[0] <= sorted_positions[-1] < len(self.images)
        ):
            raise DataError(f"a subset needs different positions from 0 to {len(self.images) - 1}")
        new_index = np.full(len(self.images), -1, dtype=np.int32)
        new_index[sorted_positions] = np.arange(len(sorted_positions), dtype=np.int32)
        keep = new_index[self.image_index] >= 0
        return replace(
            self,
            images=tuple(self.images[position] for position in sorted_positions),
            image_index=new_index[self.image_index[keep]],
            category=self.category[keep],
            box=self.box[keep],
            area=self.area[keep],
            crowd=self.crowd[keep],
            unlabelled=sum(position >= self.labelled_count for position in sorted_positions),
        )
