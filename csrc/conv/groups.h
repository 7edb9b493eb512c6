/* Narrow weights in groups: int8 weights that, for every output channel, tap and MP_GROUP input channels, are one multiplier
 * times a narrow code. Multipliers have the 8 - bits bits that codes leave, so that products are int8 weights again: tiles
 * and sums are those of int8. A panel's multipliers lie behind its codes, less 1, as codes of 8 - bits bits do (narrow.h), in
 * the order [tap][group][nr]. Internal. */
#ifndef MP_CONV_GROUPS_H
#define MP_CONV_GROUPS_H
#include "plan.h"

/* The smallest multiplier that makes codes of these weights of a channel; 0: there is none. */
int mp_group_multiplier(const mp_conv_plan *plan, const int8_t *weights, int channel, int tap, int group);
/* Where weight (tap, c of its filter) of a panel's channel j lies among the panel's narrow codes. */
size_t mp_narrow_at(const mp_conv_plan *plan, int j, int tap, int c);
/* One filter's codes and multipliers into those of a panel, as its channel j. */
void mp_pack_narrow(const mp_conv_plan *plan, const int8_t *weights, int channel, int j, char *panel);
/* A panel's multipliers, each as often as tiles read weights of it at a time: [tap][group][nr][kstep]; up to 7 bytes more are
 * written. codes: scratch for mp_narrow_blocks(mp_multipliers(plan)) blocks. */
void mp_spread_multipliers(const mp_conv_plan *plan, const mp_table *table, const char *panel, int8_t *codes,
                           int8_t *multipliers);
/* Bytes of both: the codes, and behind them what is spread. */
size_t mp_multiplier_scratch(const mp_conv_plan *plan, size_t *codes);
/* Multiplies unpacked codes first .. first + count of a panel, which stand at `weights`. */
void mp_multiply_groups(const mp_conv_plan *plan, const mp_table *table, const int8_t *multipliers, size_t first,
                        size_t count, char *weights);
#endif
