/* SPDX-License-Identifier: MIT */
/* From head tensors to metrics: box decoding, non-maximum suppression, matching, precision and recall.
 * A whole set of images goes through one call; image i owns entries offsets[i] .. offsets[i + 1] - 1.
 * All buffers are the caller's; nothing allocates, prints or keeps a pointer. Results depend on no thread count,
 * no compiler flag of an ISA level and no libm. Status: MP_OK or another value of mpnet.h. */
#ifndef MP_DETECT_H
#define MP_DETECT_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
/* A yolo layer. Anchors in pixels of the network input are passed beside it: anchor_wh[anchors][2]. */
typedef struct {
    int32_t grid_h, grid_w, anchors, classes;
    float net_w, net_h; /* network input, pixels */
    float scale_x_y;    /* 1 unless the cfg says so */
    int32_t new_coords; /* 1: values are already logistic, w and h are squared; 2: w and h are factors of the anchor */
} mp_yolo_head;

enum { MP_BY_LOGISTIC = 0, MP_BY_NOTHING = 1, MP_BY_SOFTMAX = 2, MP_BY_TREE = 3 }; /* raw classes -> probabilities */
enum { MP_CENTER = 0, MP_LEFT_TOP = 1, MP_RIGHT_BOTTOM = 2 };

/* A [region] or [Gaussian_yolo] layer, whose values are made ready to be decoded like those of a yolo layer. */
typedef struct {
    int32_t gaussian; /* 1: x, sx, y, sy, w, sw, h, sh, objectness; 0: x, y, w, h, objectness */
    int32_t grid_h, grid_w, anchors;
    int32_t entries; /* of an anchor before its classes */
    int32_t classes, out_classes, classes_by, point, background;
    float net_w, net_h, scale_x_y, threshold;
    int32_t groups;                        /* tree: sets of siblings, starts[groups + 1], parents[classes] */
    const int32_t *starts, *parents, *map; /* map[out_classes]: node of each class, or NULL */
} mp_other_head;

/* head: [cells][anchors][entries + classes] -> out: [cells][anchors][x, y, w, h, objectness, out_classes] for new_coords = 2;
 * zeros where objectness does not exceed threshold. node: [classes], scratch, for trees. */
int mp_ready_head(const mp_other_head *h, const float *anchor_wh, const float *head, int64_t cells, float *node,
                  float *out);

/* How heads of other programs are decoded; detect/imported.c has the formulas. */
enum { MP_NOT_DECODED = 0, MP_YOLOV5 = 1, MP_YOLOV8 = 2, MP_YOLOX = 3, MP_SSD = 4, MP_YOLOV8_OBB = 5 };
enum { MP_RTMDET = 6, MP_PICODET = 7, MP_LAST_DECODER = MP_PICODET };
typedef struct {
    int32_t decoder;
    int32_t reg_max; /* yolov8, rtmdet, picodet, yolov8_obb: bins of a distance */
    int32_t coords, softmax, yx,
        linear; /* ssd: values of a box; classes share with a background; y comes first; sizes are no logarithms.
                   yolov8_obb: linear: the angle is the value itself; rtmdet: one bin is the distance */
    float variances[4]; /* ssd: factors of x, y, w, h */
} mp_decoding;

typedef struct {
    mp_decoding how;
    int32_t grid_h, grid_w, boxes, classes; /* boxes: of a cell */
    float net_w, net_h;                     /* network input, pixels */
} mp_imported_head;

/* Channels of its tensor; -1: there is no such head. */
int64_t mp_imported_channels(const mp_imported_head *h);
/* head: [cells][channels] -> out: [cells][boxes][x, y, w, h, objectness, classes] for new_coords = 2 with anchors of the
 * network's size. anchor_wh: [boxes][2], pixels, of yolov5 and ssd. */
int mp_ready_imported(const mp_imported_head *h, const float *anchor_wh, const float *head, int64_t cells, float *out);

/* e^(x - largest) over their sum, in double; count of them. out may be x. */
void mp_softmax(const float *x, int32_t count, float *out);

/* Entries of one head over a set of images, per image ordered by class, then falling score, then grid cell and anchor.
 * box[entry][4]: centre x, centre y, width, height relative to the image. */
typedef struct {
    int32_t images;
    const int64_t *offsets; /* [images + 1] */
    const int32_t *category;
    const float *score;
    const float *box;
} mp_candidates;

/* Bytes of scratch for mp_decode_yolo with room for `entries` entries in all. */
int64_t mp_decode_scratch(int64_t entries);

/* Of a yolo layer without new_coords the cells that can give a box: in the others no anchor's objectness exceeds threshold.
 * objectness: raw, [images][cells] of `anchors` values, `apart` floats from one cell to the next.
 * source: [images][cells][bytes], what the head's values are computed from.
 * An image's cells lie in rising order, in whole blocks of rows: image i has rows starts[i] .. starts[i + 1] - 1, row r is
 * chosen[r], whose source is copied to gathered[r][bytes]. Rows that fill up a block are cell -1, with the source of the
 * cell before. Room is needed for images * cells rows, cells rounded up to blocks. starts[images + 1]. */
int mp_likely_cells(const float *objectness, int32_t images, int32_t cells, int32_t anchors, int32_t apart,
                    float threshold, const void *source, int64_t bytes, int32_t block, int64_t *starts, int32_t *chosen,
                    void *gathered);

/* head: [images][grid_h][grid_w][anchors * (5 + classes)], the tensor that enters the yolo layer; with starts and cells
 * (else NULL) the rows of some cells, [rows][anchors * (5 + classes)]: image i has rows starts[i] .. starts[i + 1] - 1, row
 * r is cell cells[r], counted along the grid's rows; -1: none.
 * geometry: [images][4] = x offset, y offset, width, height of the image's content in the network input, relative to
 * it: (0, 0, 1, 1) for a plain resize. Keeps class scores objectness * probability > threshold, each as an entry.
 * *needed receives the number of entries; when it exceeds `capacity` nothing else is written and the caller calls
 * again with more room. MP_NONFINITE: a box that passes is not finite; *needed is then the image's index. */
int mp_decode_yolo(const mp_yolo_head *yolo, const float *anchor_wh, const float *head, const int64_t *starts,
                   const int32_t *cells, int32_t images, const float *geometry, float threshold, int64_t capacity,
                   void *scratch, int64_t *needed, int64_t *offsets, int32_t *category, float *score, float *box);

enum { MP_NMS_IOU = 0, MP_NMS_DISTANCE = 1, MP_NMS_BLOCK = 16 };

/* Suppression per class over the union of `heads` heads. A box goes when its overlap with a kept one of the same class
 * exceeds threshold; overlap is IoU, or IoU - (d2 / c2)^beta with MP_NMS_DISTANCE (d2: squared distance of the centres,
 * c2: squared diagonal of the enclosing box, both relative to the image). Equal scores: lower head first.
 * image_wh: [images][2] in pixels. Outputs have room for the entries of all heads; out_box: x, y, width, height in
 * pixels of the image, not clipped. fullest: entries of the fullest image, all heads together;
 * scratch: 7 * (fullest + MP_NMS_BLOCK) floats. */
int mp_nms(const mp_candidates *heads, int32_t head_count, int kind, float threshold, float beta, const float *image_wh,
           int64_t fullest, float *scratch, int64_t *out_offsets, int32_t *out_category, float *out_score,
           float *out_box);

/* Matching as COCO defines it, for one area range, at up to 16 IoU thresholds.
 * Detections: of `runs` runs over all images, one after the other; offsets[runs * images + 1]. Per image ordered by
 * category, then falling score. Truths: cell_offsets[images * categories + 1], image by image. box: x, y, width, height;
 * cut at the image's edges first when image_wh, [images][2], is given. A truth is left out of the count (ignored)
 * when crowd or outside the area range.
 * Per detection: bit t of matched and of ignored; rank (position within image and category, from 0); truth: the one
 * matched at the first threshold, or -1. Ranks from max_rank on are ignored.
 * scratch: 16 bytes for each truth of the fullest cell. */
int mp_match_coco(int32_t runs, int32_t images, int32_t categories, const int64_t *offsets, const int32_t *category,
                  const float *box, const float *image_wh, const int64_t *cell_offsets, const double *truth_box,
                  const double *truth_area, const uint8_t *truth_crowd, double area_low, double area_high,
                  const double *iou_thresholds, int32_t threshold_count, int32_t max_rank, void *scratch,
                  uint16_t *matched, uint16_t *ignored, int32_t *rank, int32_t *truth);

/* The truth of the same image and category with the highest IoU > minimum for every detection, or -1; float32. */
int mp_best_overlap(int32_t images, int32_t categories, const int64_t *offsets, const int32_t *category,
                    const float *box, const int64_t *cell_offsets, const double *truth_box, double minimum,
                    int32_t *truth);

/* order: indices of the detections by category, then falling score, equal scores in image order; start[categories + 1].
 * scratch: 16 bytes for each detection. */
int mp_order_by_category(int32_t categories, int64_t count, const int32_t *category, const float *score, void *scratch,
                         int64_t *order, int64_t *start);

/* 101-point average precision and final recall, [draws][categories][thresholds], as fractions; -1 without truths.
 * Detections come ordered by category and falling score; start[categories + 1]. positives: per image and category,
 * the truths that count. given: [categories], further truths that are found before every detection, or NULL for none.
 * weight: [draws][images], how often each image counts, or NULL for once (draws is 1 then).
 * scratch: 24 bytes per detection of the fullest category, one per truth of the category (weighted, given ones too), and
 * 32 more. */
int mp_average_precision(int32_t images, int32_t categories, int32_t threshold_count, const int64_t *start,
                         const uint16_t *matched, const uint16_t *ignored, const int32_t *rank, const int32_t *image,
                         const int32_t *positives, const int32_t *given, int32_t draws, const int32_t *weight,
                         int32_t max_rank, void *scratch, double *precision, double *recall);

/* Element by element, for tests and for NumPy code that must give the bits of the kernels. */
void mp_exp_array(int64_t count, const float *x, float *out);
void mp_logistic_array(int64_t count, const float *x, float *out);
/* cdef end */
#endif
