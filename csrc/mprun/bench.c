/* SPDX-License-Identifier: MIT */
/* Times of a pass and of its steps. */
#include <stdlib.h>
#include "commands.h"

enum { WARM_UP = 1 };

/* An input as good as any: what it holds does not change the time. */
static void fill(mpr_pass *pass)
{
    uint32_t state = 1;
    for (uint64_t i = 0; i < mpr_values(&pass->slots[0]); i++) {
        state = state * 1664525u + 1013904223u;
        pass->image[i] = (float)(state >> 8) * 0x1p-24f;
    }
}

int mpr_time(mpr_pass *pass, int repeats, double *step_ms, double *pass_ms, char *error)
{
    const int steps = pass->program->steps;
    fill(pass);
    for (int r = -WARM_UP; r < repeats; r++) {
        pass->tensors[0].has_range = 0;
        for (int n = 0; step_ms && n < steps; n++) {
            const double begin = mpr_now_ms();
            mpr_pass_step(pass, &pass->steps[n]);
            /* Heads only hand tensors over: no call, no time. */
            const double ms = pass->steps[n].operation == MPB_YOLO ? 0 : mpr_now_ms() - begin;
            if (r >= 0) step_ms[(size_t)n * repeats + r] = ms;
        }
        const double begin = mpr_now_ms();
        if (mpr_pass_run(pass, error)) return -1;
        if (r >= 0) pass_ms[r] = mpr_now_ms() - begin;
    }
    return 0;
}

int mpr_bench(mprun *net, int repeats, int json)
{
    const int steps = net->pass.program->steps;
    double *step_ms = malloc(((size_t)steps + 1) * repeats * sizeof *step_ms),
           *pass_ms = malloc(repeats * sizeof *pass_ms);
    const int failed = step_ms && pass_ms ? mpr_time(&net->pass, repeats, step_ms, pass_ms, net->error)
                                          : mpr_fail(net->error, "no memory");
    if (!failed) {
        const double median = mpr_median(pass_ms, repeats); /* which sorts them */
        const char *isa = mp_table_name(net->weights.table);
        printf(json ? "{\"isa\": \"%s\", \"threads\": %d, \"median_ms\": %.17g, \"images\": %d, \"min_ms\": %.17g, "
                      "\"steps\": ["
                    : "%s, %d threads: %.3f ms (median of %d), %.3f ms at least\n",
               isa, net->weights.threads, median, repeats, pass_ms[0]);
        for (int n = 0, first = 1; n < steps; n++) {
            const mpb_step *step = &net->pass.steps[n];
            if (step->operation == MPB_YOLO) continue;
            const double ms = mpr_median(step_ms + (size_t)n * repeats, repeats);
            const char *layer = mpr_layer_name(&net->file, step->layer);
            char name[1024];
            snprintf(name, sizeof name, "%s for %s", mpr_operation_name(step), layer);
            if (json) {
                printf("%s{\"step\": ", first ? "" : ", ");
                mpr_json_text(stdout, name);
                printf(", \"layer\": %d, \"ms\": %.17g, \"min_ms\": %.17g}", (int)step->layer, ms,
                       step_ms[(size_t)n * repeats]); /* sorted by the median */
            } else {
                printf("  %8.3f ms  ", ms);
                mpr_plain_text(stdout, name);
                printf("\n");
            }
            first = 0;
        }
        if (json) printf("]}\n");
    }
    free(step_ms);
    free(pass_ms);
    return failed;
}
