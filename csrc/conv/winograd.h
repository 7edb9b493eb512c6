#ifndef MP_CONV_WINOGRAD_H
#define MP_CONV_WINOGRAD_H
#include "item.h"

/* F(4x4, 3x3): 36 multiplications where direct convolution has 144. */
void mp_winograd_item(mp_item *item);
#endif
