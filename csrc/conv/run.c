#include "run.h"
#include <math.h>
#include <pthread.h>
#include "../team.h"
#include "direct.h"
#include "winograd.h"

/* What the items of a call share, and what they leave. */
typedef struct {
    const mp_conv_plan *plan;
    const mp_table *table;
    const mp_conv_args *args;
    mp_schedule schedule;
    pthread_mutex_t lock;
    int bad;
} conv_call;

static void run_item(const void *context, int64_t number, int member)
{
    conv_call *call = (conv_call *)context;
    const mp_schedule *schedule = &call->schedule;
    const int per_image = schedule->blocks * schedule->chunks, rest = (int)(number % per_image);
    mp_item item = {.plan = call->plan,
                    .table = call->table,
                    .args = call->args,
                    .schedule = schedule,
                    .image = (int)(number / per_image),
                    .block = rest / schedule->chunks};
    mp_item_prepare(&item, rest % schedule->chunks, (char *)call->args->scratch + member * schedule->at.bytes);
    if (call->plan->winograd)
        mp_winograd_item(&item);
    else
        mp_direct_item(&item);
    const mp_summary summary = mp_item_summarise(&item);
    pthread_mutex_lock(&call->lock);
    call->bad |= summary.bad;
    if (call->args->ranges) {
        float *range = call->args->ranges + 2 * item.image;
        range[0] = summary.minimum < range[0] ? summary.minimum : range[0];
        range[1] = summary.maximum > range[1] ? summary.maximum : range[1];
    }
    pthread_mutex_unlock(&call->lock);
}

int mp_conv_run(const mp_conv_plan *plan, const mp_table *table, const mp_conv_args *args)
{
    conv_call call = {.plan = plan, .table = table, .args = args, .lock = PTHREAD_MUTEX_INITIALIZER};
    mp_conv_schedule(plan, args->pool_h, args->threads, &call.schedule);
    if (args->scratch_bytes < call.schedule.at.bytes * args->threads) return MP_BAD_ARGUMENT;
    for (int i = 0; args->ranges && i < args->images; i++) {
        args->ranges[2 * i] = INFINITY;
        args->ranges[2 * i + 1] = -INFINITY;
    }
    mp_share(args->threads, (int64_t)args->images * call.schedule.blocks * call.schedule.chunks, run_item, &call);
    for (int i = 0; args->ranges && i < 2 * args->images; i++)
        args->ranges[i] += 0.0f; /* -0 and 0 compare equal: leave one of them */
    return call.bad ? MP_NONFINITE : MP_OK;
}
