/* SPDX-License-Identifier: MIT */
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
    int64_t first_item; /* items that were done by earlier shares */
    pthread_mutex_t lock;
    int bad;
} conv_call;

enum { NO_IMAGE = -1 };

static char *scratch_of(const conv_call *call, int member)
{
    return (char *)call->args->scratch + member * call->schedule.scratch.bytes;
}

static mp_item *item_of(const conv_call *call, int member)
{
    return (mp_item *)(scratch_of(call, member) + call->schedule.scratch.item);
}

static mp_item *prepare_item(const conv_call *call, int64_t number, int member)
{
    const mp_schedule *schedule = &call->schedule;
    const int per_image = schedule->blocks * schedule->chunks, image = (int)(number / per_image),
              index = (int)(number % per_image);
    mp_item *item = item_of(call, member);
    if (item->image != image) {
        *item = (mp_item){
            .plan = call->plan, .table = call->table, .args = call->args, .schedule = schedule, .image = image};
        mp_item_prepare(item, scratch_of(call, member));
        if (schedule->shares) item->transformed = scratch_of(call, 0) + schedule->scratch.transformed;
    }
    mp_item_begin(item, index / schedule->chunks, index % schedule->chunks);
    return item;
}

/* A part of the block of the items that come next. */
static void transform_share(const void *context, int64_t share, int member)
{
    const conv_call *call = context;
    mp_winograd_transform(prepare_item(call, call->first_item, member), (int)share, call->schedule.chunks);
}

static void run_item(const void *context, int64_t number, int member)
{
    conv_call *call = (conv_call *)context;
    mp_item *item = prepare_item(call, call->first_item + number, member);
    if (call->plan->winograd) {
        if (!call->schedule.shares) mp_winograd_transform(item, 0, 1);
        mp_winograd_multiply(item);
    } else {
        mp_direct_item(item);
    }
    const mp_summary summary = mp_item_summarise(item);
    pthread_mutex_lock(&call->lock);
    call->bad |= summary.bad;
    if (call->args->ranges) {
        float *range = call->args->ranges + 2 * item->image;
        range[0] = summary.minimum < range[0] ? summary.minimum : range[0];
        range[1] = summary.maximum > range[1] ? summary.maximum : range[1];
    }
    pthread_mutex_unlock(&call->lock);
}

int mp_conv_run(const mp_conv_plan *plan, const mp_table *table, const mp_conv_args *args)
{
    conv_call call = {.plan = plan, .table = table, .args = args, .lock = PTHREAD_MUTEX_INITIALIZER};
    mp_conv_schedule(plan, args->pool_h, args->threads, &call.schedule);
    if (args->scratch_bytes < call.schedule.scratch.bytes * args->threads) return MP_BAD_ARGUMENT;
    for (int i = 0; i < args->threads; i++) item_of(&call, i)->image = NO_IMAGE;
    for (int i = 0; args->ranges && i < args->images; i++) {
        args->ranges[2 * i] = INFINITY;
        args->ranges[2 * i + 1] = -INFINITY;
    }
    const int64_t items = (int64_t)args->images * call.schedule.blocks * call.schedule.chunks,
                  share_size = call.schedule.shares ? call.schedule.chunks : items;
    for (; call.first_item < items; call.first_item += share_size) {
        if (call.schedule.shares) mp_share(args->threads, share_size, transform_share, &call);
        mp_share(args->threads, share_size, run_item, &call);
    }
    for (int i = 0; args->ranges && i < 2 * args->images; i++)
        args->ranges[i] += 0.0f; /* -0 and 0 compare equal: leave one of them */
    return call.bad ? MP_NONFINITE : MP_OK;
}
