# SPDX-License-Identifier: MIT
"""Write the part of COCO's annotations that the study uses: the images of images.txt, beside this file.

python experiments/yolov3-tiny/images.py coco/annotations/instances_val2017.json coco/study.json
"""

import json
import sys
from pathlib import Path

WANTED = set((Path(__file__).parent / "images.txt").read_text(encoding="utf-8").split())


def main(source: str, target: str) -> None:
    """Write the part of COCO's annotations `source` that is of the images in images.txt to `target`."""
    try:
        document = json.loads(Path(source).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{source}: {error}; give COCO's instances_val2017.json")
    images = [image for image in document["images"] if image["file_name"] in WANTED]
    if len(images) != len(WANTED):
        sys.exit(f"{source}: holds {len(images)} of the {len(WANTED)} images; give COCO's instances_val2017.json")
    kept = {image["id"] for image in images}
    annotations = [
        {key: value for key, value in annotation.items() if key != "segmentation"}
        for annotation in document["annotations"]
        if annotation["image_id"] in kept
    ]
    Path(target).write_text(json.dumps({**document, "images": images, "annotations": annotations}), encoding="utf-8")
    print(f"{target}: {len(images)} images, {len(annotations)} boxes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
