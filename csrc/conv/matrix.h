/* SPDX-License-Identifier: MIT */
#ifndef MP_CONV_MATRIX_H
#define MP_CONV_MATRIX_H
#include "depth_pass.h"

/* mp_depth_pass by a matrix unit (mp_matrix). */
void mp_matrix_pass(mp_item *item, const mp_depth_pass *pass);
/* After the last pass of an item: nothing is left in the unit. */
void mp_matrix_end(mp_item *item);
#endif
