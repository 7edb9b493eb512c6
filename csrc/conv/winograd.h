/* SPDX-License-Identifier: MIT */
#ifndef MP_CONV_WINOGRAD_H
#define MP_CONV_WINOGRAD_H
#include "item.h"

/* F(4x4, 3x3): 36 multiplications where direct convolution has 144. First the input tiles of the item's block are transformed,
 * in `parts` parts, by one thread or by several into one memory; then its panels. */
void mp_winograd_transform(mp_item *item, int part, int parts);
void mp_winograd_multiply(mp_item *item);
#endif
