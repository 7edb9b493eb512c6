/* SPDX-License-Identifier: MIT */
#ifndef MP_CONV_DIRECT_H
#define MP_CONV_DIRECT_H
#include "item.h"

/* Tiles or, per channel, depthwise rows: products in depth order. */
void mp_direct_item(mp_item *item);
#endif
