#include "run.h"
#include <math.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "direct.h"
#include "winograd.h"

int mp_conv_run(const mp_conv_plan *plan, const mp_table *table, const mp_conv_args *args)
{
    mp_schedule schedule;
    mp_conv_schedule(plan, args->pool_h, args->threads, &schedule);
    if (args->scratch_bytes < schedule.at.bytes * args->threads)
        return MP_BAD_ARGUMENT;
    const int per_image = schedule.blocks * schedule.chunks;
    const int64_t items = (int64_t)args->images * per_image;
    int bad = 0;
    if (args->ranges)
        for (int i = 0; i < args->images; i++) {
            args->ranges[2 * i] = INFINITY;
            args->ranges[2 * i + 1] = -INFINITY;
        }
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(args->threads) if (args->threads > 1 && items > 1) reduction(| : bad)
#endif
    for (int64_t i = 0; i < items; i++) {
#ifdef _OPENMP
        const int thread = omp_get_thread_num();
#else
        const int thread = 0;
#endif
        mp_item item = {.plan = plan, .table = table, .args = args, .schedule = &schedule, .image = (int)(i / per_image)};
        const int rest = (int)(i % per_image);
        item.block = rest / schedule.chunks;
        mp_item_prepare(&item, rest % schedule.chunks, (char *)args->scratch + thread * schedule.at.bytes);
        if (plan->winograd)
            mp_winograd_item(&item);
        else
            mp_direct_item(&item);
        const mp_summary summary = mp_item_summarise(&item);
        bad |= summary.bad;
        if (args->ranges) {
#ifdef _OPENMP
#pragma omp critical(mp_conv_ranges)
#endif
            {
                float *range = args->ranges + 2 * item.image;
                range[0] = summary.minimum < range[0] ? summary.minimum : range[0];
                range[1] = summary.maximum > range[1] ? summary.maximum : range[1];
            }
        }
    }
    if (args->ranges)
        for (int i = 0; i < 2 * args->images; i++)
            args->ranges[i] += 0.0f; /* -0 and 0 compare equal: leave one of them */
    return bad ? MP_NONFINITE : MP_OK;
}
