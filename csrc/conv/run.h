/* SPDX-License-Identifier: MIT */
#ifndef MP_CONV_RUN_H
#define MP_CONV_RUN_H
#include "plan.h"

/* All items of a call, over its threads. Arguments were checked, but for the size of scratch. */
int mp_conv_run(const mp_conv_plan *plan, const mp_table *table, const mp_conv_args *args);
#endif
