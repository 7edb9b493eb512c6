# SPDX-License-Identifier: MIT
"""Labels of data sets: YOLO and its lists, COCO, one class per image."""
