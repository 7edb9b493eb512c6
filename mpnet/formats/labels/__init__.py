"""Labels of data sets: YOLO and its lists, COCO, one class per image."""
