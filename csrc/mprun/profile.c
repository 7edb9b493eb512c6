/* SPDX-License-Identifier: MIT */
/* The table of all steps that any configuration of the network has, as `mpnet profile` makes it. */
#include <stdlib.h>
#include <string.h>
#include "commands.h"

void mpr_cpu_name(char *name, int capacity)
{
    static const char *const KEYS[] = {"model name", "Model", "Hardware", "cpu model"};
    char line[256];
    snprintf(name, (size_t)capacity, "unknown");
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
        FILE *file = fopen("/proc/cpuinfo", "r");
        while (file && fgets(line, sizeof line, file)) {
            char *value = strchr(line, ':');
            if (!value || strncmp(line, KEYS[k], strlen(KEYS[k])) != 0) continue;
            value += 1 + strspn(value + 1, " \t");
            value[strcspn(value, "\n")] = 0;
            if (*value) snprintf(name, (size_t)capacity, "%s", value);
            fclose(file);
            return;
        }
        if (file) fclose(file);
    }
}

/* Times of a signature within one program, a sum where several steps have it; equal signatures lie at one place of the text. */
typedef struct {
    uint32_t signature;
    double *ms; /* [repeats] */
} sample;

/* A whole configuration. */
typedef struct {
    const mpb_program *program;
    double measured, predicted;
} check;

/* One measurement of everything. */
typedef struct {
    sample *samples;
    check *checks;
    uint32_t *signature;
    double *ms; /* by signature */
    double scale, mean, largest;
    int sample_count, check_count, count, repeats;
} table;

static void table_free(table *t)
{
    for (int i = 0; i < t->sample_count; i++) free(t->samples[i].ms);
    free(t->samples);
    free(t->checks);
    free(t->signature);
    free(t->ms);
    *t = (table){0};
}

static int table_of(table *t, const mpr_file *file, int repeats, char *error)
{
    const size_t steps = (size_t)file->count[MPB_STEPS] + 1, programs = (size_t)file->count[MPB_PROGRAMS];
    *t = (table){malloc(steps * sizeof *t->samples), malloc(programs * sizeof *t->checks),
                 malloc(steps * sizeof *t->signature), malloc(steps * sizeof *t->ms), .repeats = repeats};
    return t->samples && t->checks && t->signature && t->ms ? 0 : mpr_fail(error, "no memory");
}

static int sample_of(const table *t, int first, uint32_t signature)
{
    while (first < t->sample_count && t->samples[first].signature != signature) first++;
    return first;
}

/* Takes a program's times in: all of them, or of those signatures that nothing had before. */
static int add_times(table *t, const mpr_pass *pass, const double *step_ms, int only_new, char *error)
{
    const int first_new = t->sample_count;
    for (int n = 0; n < pass->program->steps; n++) {
        const uint32_t signature = pass->steps[n].signature;
        if (only_new && sample_of(t, 0, signature) < first_new) continue;
        const int index = sample_of(t, first_new, signature);
        if (index == t->sample_count) {
            double *ms = calloc((size_t)t->repeats, sizeof *ms);
            if (!ms) return mpr_fail(error, "no memory");
            t->samples[t->sample_count++] = (sample){signature, ms};
        }
        for (int r = 0; r < t->repeats; r++) t->samples[index].ms[r] += step_ms[(size_t)n * t->repeats + r];
    }
    return 0;
}

static int lacks_times(const table *t, const mpr_pass *pass)
{
    for (int n = 0; n < pass->program->steps; n++)
        if (sample_of(t, 0, pass->steps[n].signature) == t->sample_count) return 1;
    return 0;
}

static double ms_of(const table *t, uint32_t signature)
{
    int i = 0;
    while (t->signature[i] != signature) i++;
    return t->ms[i];
}

/* The medians, and how far their sums are from what was measured. buffer: for all samples' times. */
static void summarize(table *t, const mpr_file *file, double *buffer)
{
    for (int first = 0; first < t->sample_count; first++) {
        const uint32_t signature = t->samples[first].signature;
        if (sample_of(t, 0, signature) < first) continue;
        int count = 0;
        for (int i = first; i < t->sample_count; i++)
            for (int r = 0; t->samples[i].signature == signature && r < t->repeats; r++)
                buffer[count++] = t->samples[i].ms[r];
        t->signature[t->count] = signature;
        t->ms[t->count++] = t->scale * mpr_median(buffer, count);
    }
    for (int i = 0; i < t->check_count; i++) {
        check *c = &t->checks[i];
        c->predicted = 0;
        for (int n = 0; n < c->program->steps; n++)
            c->predicted += ms_of(t, file->steps[c->program->first_step + n].signature);
        const double error_percent = 100 * (c->predicted / c->measured - 1),
                     size = error_percent < 0 ? -error_percent : error_percent;
        t->mean += size / t->check_count;
        t->largest = size > t->largest ? size : t->largest;
    }
}

/* One program's times. ratios: of whole passes to the sums of their steps, one for each program. */
static int measure_program(mprun *net, table *t, int64_t number, double *ratios, int *ratio_count)
{
    const int repeats = t->repeats, covering = net->file.programs[number].purpose == MPB_COVERING;
    mpr_pass pass;
    if (mpr_pass_open(&pass, &net->weights, number, net->error)) return -1;
    const int steps = pass.program->steps, by_step = covering || lacks_times(t, &pass);
    double *step_ms = malloc(((size_t)steps + 1) * repeats * sizeof *step_ms),
           *pass_ms = malloc(repeats * sizeof *pass_ms);
    int failed = step_ms && pass_ms ? 0 : mpr_fail(net->error, "no memory");
    if (!failed && by_step)
        failed = mpr_time(&pass, repeats, step_ms, pass_ms, net->error) ||
                 add_times(t, &pass, step_ms, !covering, net->error);
    if (!failed && covering) {
        /* Sums of a pass's steps, where the times of the last one would be. */
        double *sums = step_ms + (size_t)steps * repeats;
        for (int r = 0; r < repeats; r++) {
            sums[r] = 0;
            for (int n = 0; n < steps; n++) sums[r] += step_ms[(size_t)n * repeats + r];
        }
        const double sum = mpr_median(sums, repeats);
        ratios[(*ratio_count)++] = sum > 0 ? mpr_median(pass_ms, repeats) / sum : 1;
    } else if (!failed && !(failed = mpr_time(&pass, repeats, 0, pass_ms, net->error))) {
        const double ms = mpr_median(pass_ms, repeats);
        t->checks[t->check_count++] = (check){pass.program, ms > 0 ? ms : 1e-9, 0};
    }
    free(step_ms);
    free(pass_ms);
    mpr_pass_close(&pass);
    return failed;
}

static int measure(mprun *net, table *t, int repeats)
{
    const mpr_file *file = &net->file;
    int ratio_count = 0;
    double *ratios = malloc((size_t)file->count[MPB_PROGRAMS] * sizeof *ratios);
    int failed = table_of(t, file, repeats, net->error) || (!ratios && mpr_fail(net->error, "no memory"));
    for (int purpose = MPB_COVERING; purpose <= MPB_CHECK; purpose++)
        for (int64_t p = 0; !failed && p < file->count[MPB_PROGRAMS]; p++)
            if (file->programs[p].purpose == purpose) failed = measure_program(net, t, p, ratios, &ratio_count);
    double *buffer = failed ? 0 : malloc(((size_t)t->sample_count * repeats + 1) * sizeof *buffer);
    if (!failed && !buffer) failed = mpr_fail(net->error, "no memory");
    if (!failed) {
        t->scale = ratio_count ? mpr_median(ratios, ratio_count) : 1;
        summarize(t, file, buffer);
    }
    free(buffer);
    free(ratios);
    return failed;
}

static void write_head(FILE *out, const mprun *net, double scale)
{
    const mpr_file *file = &net->file;
    char cpu[128];
    mpr_cpu_name(cpu, sizeof cpu);
    fprintf(out, "{\n \"format\": \"mpnet-latency\",\n \"version\": 1,\n \"network\": ");
    mpr_json_text(out, mpr_text(file, file->network->cfg_digest));
    fprintf(out, ",\n \"precisions\": [");
    const char *names = mpr_text(file, file->network->precisions);
    for (int first = 1; *names; first = 0) {
        char name[64];
        const size_t length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        fputs(first ? "" : ", ", out);
        mpr_json_text(out, name);
        names += length + (names[length] == ',');
    }
    fprintf(out, "],\n \"machine\": {\"cpu\": ");
    mpr_json_text(out, cpu);
    fprintf(out, ", \"isa\": \"%s\", \"threads\": %d, \"batch\": 1, \"scale\": %.17g},\n",
            mp_table_name(net->weights.table), net->weights.threads, scale);
}

static void write(FILE *out, const mprun *net, const table *t)
{
    const mpr_file *file = &net->file;
    write_head(out, net, t->scale);
    fprintf(out, " \"steps\": {");
    for (int i = 0; i < t->count; i++) {
        fputs(i ? ",\n  " : "\n  ", out);
        mpr_json_text(out, mpr_text(file, t->signature[i]));
        fprintf(out, ": %.17g", t->ms[i]);
    }
    fprintf(out, "\n },\n \"checks\": [");
    for (int i = 0; i < t->check_count; i++) {
        const check *c = &t->checks[i];
        fprintf(out, "%s\n  {\"precision\": ", i ? "," : "");
        mpr_json_text(out, mpr_text(file, c->program->key));
        fprintf(out, ", \"measured_ms\": %.17g, \"predicted_ms\": %.17g}", c->measured, c->predicted);
    }
    fprintf(out, "\n ],\n \"error_percent\": {\"mean\": %.17g, \"largest\": %.17g}\n}\n", t->mean, t->largest);
}

int mpr_profile(mprun *net, const char *path, int repeats)
{
    table best = {0};
    mpr_output out;
    int result = 0;
    if (net->file.count[MPB_PROGRAMS] < 2)
        return mpr_fail(net->error, "%s: was exported without programs to time; export it again without --no-profile",
                        net->file.name);
    for (int round = 0; !result && round < MPB_PROFILE_ROUNDS && (!round || best.mean > MPB_PROFILE_PERCENT); round++) {
        table current;
        result = measure(net, &current, repeats);
        if (!result && (!round || current.mean < best.mean)) {
            const table worse = best;
            best = current;
            current = worse;
        }
        table_free(&current);
    }
    if (!result) result = mpr_output_open(&out, path, net->error);
    if (!result) {
        write(out.file, net, &best);
        result = mpr_output_finish(&out, net->error);
    }
    if (!result) {
        printf("%d steps on %s, %d threads; predictions are off by %.1f %% on average, %.1f %% at most\nwritten to ",
               best.count, mp_table_name(net->weights.table), net->weights.threads, best.mean, best.largest);
        mpr_plain_text(stdout, path);
        printf("\n");
    }
    if (!result && best.mean > MPB_PROFILE_PERCENT) {
        result = MPR_POOR;
        mpr_fail(
            net->error,
            "the machine is too busy: the predictions stay %.1f %% off on average (at most %d %% are good); sweeps "
            "refuse this table unless sweep.latency_error says %d or more",
            best.mean, MPB_PROFILE_PERCENT, (int)best.mean + 1);
    }
    table_free(&best);
    return result;
}
