/* SPDX-License-Identifier: MIT */
/* Narrow weights in groups: int8 weights that, for every output channel, tap and MP_GROUP input channels, are one multiplier
 * times a narrow code. Multipliers have the 8 - bits bits that codes leave, so that products are int8 weights again: tiles
 * and sums are those of int8. A panel's multipliers lie behind its codes, less 1, as codes of 8 - bits bits do (narrow.h; from the least
 * code on), in the order in which groups come: [tap][group][nr], with Winograd [group][tap][nr]. Internal. */
#ifndef MP_CONV_GROUPS_H
#define MP_CONV_GROUPS_H
#include "plan.h"

/* The smallest multiplier that makes codes of these weights of a channel; 0: there is none. */
int mp_group_multiplier(const mp_conv_plan *plan, const int8_t *weights, int channel, int tap, int group);
/* Where weight (tap, c of its filter) of a panel's channel j lies among the panel's narrow codes: as tiles read them, or with Winograd
 * [group][tap][step][nr][kstep], a group's taps in whole blocks each; there they become bytes. */
size_t mp_narrow_at(const mp_conv_plan *plan, int j, int tap, int c);
/* One filter's codes and multipliers into those of a panel, as its channel j. */
void mp_pack_narrow(const mp_conv_plan *plan, const int8_t *weights, int channel, int j, char *panel);
/* Direct: weights first .. first + count of a panel, products of codes and multipliers; up to a block is written before and after. */
void mp_unpack_groups(const mp_conv_plan *plan, const mp_table *table, const char *stored, const int8_t *multipliers,
                      size_t first, size_t count, char *weights);
/* The multipliers of weights first .. first + count, as tiles for weights in groups read them behind these (mp_micro.multiplies_groups). */
void mp_spread_multipliers(const mp_conv_plan *plan, const int8_t *multipliers, size_t first, size_t count,
                           int32_t *out);
#endif
