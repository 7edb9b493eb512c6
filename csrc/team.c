/* SPDX-License-Identifier: MIT */
/* Nobody waits for a helper that did not come. The caller does items until none is left, whoever helps, and then waits only for
 * items that a helper has begun: where other programs keep the cores busy, a barrier would wait for every thread to get its
 * turn once per layer. Helpers look out for the next call for a short while (between two layers), then sleep. */
#define _GNU_SOURCE
#include "team.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

/* Some C libraries give threads less than attention takes; sanitizers make it take more. */
#ifndef MP_STACK_BYTES
#define MP_STACK_BYTES (1 << 20)
#endif
enum { MOST_HELPERS = 1023, LOOK_OUT_NS = 50000, WAIT_NS = 50000, STACK_BYTES = MP_STACK_BYTES };

typedef struct job {
    mp_work *work;
    const void *context;
    int64_t items;
    _Atomic int64_t next; /* items begun */
    int threads, joined;  /* joined: helpers so far, under the lock */
    _Atomic int
        active; /* helpers that have begun, changed under the lock; the job is the caller's again once it is 0 */
    struct job *following;
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static job *jobs; /* open to helpers */
static int helpers, asleep, waiting;
static _Atomic unsigned calls;

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Spins until CONDITION holds, for NS nanoseconds at most. */
#define SPIN_UNTIL(CONDITION, NS)                                                                                      \
    for (int64_t until_ = now_ns() + (NS); !(CONDITION) && now_ns() < until_;)                                         \
        for (int spin_ = 0; spin_ < 16 && !(CONDITION); spin_++) pause_briefly()

/* In the order that mp_share_step tells. */
static void do_items(job *j, int member)
{
    int64_t this_job = 0;
    for (int64_t item; (item = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->items; this_job++)
        j->work(j->context, j->threads != 2 ? item : member ? j->items - 1 - this_job : this_job, member);
}

static void *help(void *unused)
{
    for (;;) {
        const unsigned seen_calls = atomic_load(&calls);
        pthread_mutex_lock(&lock);
        job *j = jobs;
        while (j && (j->joined + 1 >= j->threads || atomic_load(&j->next) >= j->items)) j = j->following;
        if (j) {
            const int member = ++j->joined;
            atomic_fetch_add(&j->active, 1);
            pthread_mutex_unlock(&lock);
            do_items(j, member);
            pthread_mutex_lock(&lock);
            atomic_fetch_sub(&j->active, 1); /* from here on the job may be gone */
            if (waiting) pthread_cond_broadcast(&finished);
            pthread_mutex_unlock(&lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        SPIN_UNTIL(atomic_load(&calls) != seen_calls, LOOK_OUT_NS);
        pthread_mutex_lock(&lock);
        asleep++;
        while (atomic_load(&calls) == seen_calls) pthread_cond_wait(&called, &lock);
        asleep--;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

/* A forked child has none of its parent's helpers, nor a use for the lock as it was. */
static void start_over(void)
{
    pthread_mutex_init(&lock, 0);
    pthread_cond_init(&called, 0);
    pthread_cond_init(&finished, 0);
    jobs = 0;
    helpers = asleep = waiting = 0;
}

/* As many as all open jobs can use; fewer where the system has no more threads. Under the lock. */
static void start_helpers(void)
{
    static int was_registered;
    int needed = 0;
    for (const job *j = jobs; j; j = j->following) needed += j->threads - 1;
    if (needed > MOST_HELPERS) needed = MOST_HELPERS;
    if (!was_registered++) pthread_atfork(0, 0, start_over);
    if (helpers >= needed) return;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigset_t all_signals, previous; /* signals are the caller's */
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &previous);
    for (pthread_t thread; helpers < needed && pthread_create(&thread, &attributes, help, 0) == 0; helpers++)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &previous, 0);
    pthread_attr_destroy(&attributes);
}

void mp_share(int threads, int64_t items, mp_work *work, const void *context)
{
    if (threads > items) threads = (int)items;
    job this_job = {.work = work, .context = context, .items = items, .threads = threads};
    if (threads <= 1) {
        do_items(&this_job, 0);
        return;
    }
    pthread_mutex_lock(&lock);
    this_job.following = jobs;
    jobs = &this_job;
    start_helpers();
    atomic_fetch_add(&calls, 1);
    if (asleep) pthread_cond_broadcast(&called);
    pthread_mutex_unlock(&lock);
    do_items(&this_job, 0);
    pthread_mutex_lock(&lock);
    for (job **link = &jobs; *link; link = &(*link)->following)
        if (*link == &this_job) {
            *link = this_job.following;
            break;
        }
    pthread_mutex_unlock(&lock);
    SPIN_UNTIL(!atomic_load(&this_job.active), WAIT_NS);
    if (!atomic_load(&this_job.active)) return;
    pthread_mutex_lock(&lock);
    waiting++;
    while (atomic_load(&this_job.active)) pthread_cond_wait(&finished, &lock);
    waiting--;
    pthread_mutex_unlock(&lock);
}
