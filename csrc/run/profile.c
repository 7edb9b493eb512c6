/* Times: of a pass, of its steps, and the table of all steps that any configuration of the network has. */
#include <stdlib.h>
#include <string.h>
#include "commands.h"

enum { WARM_UP = 1 };

void mpr_cpu_name(char *name, int room)
{
    static const char *const KEYS[] = {"model name", "Model", "Hardware", "cpu model"};
    char line[256];
    snprintf(name, (size_t)room, "unknown");
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
        FILE *file = fopen("/proc/cpuinfo", "r");
        while (file && fgets(line, sizeof line, file)) {
            char *value = strchr(line, ':');
            if (!value || strncmp(line, KEYS[k], strlen(KEYS[k])) != 0) continue;
            value += 1 + strspn(value + 1, " \t");
            value[strcspn(value, "\n")] = 0;
            if (*value) snprintf(name, (size_t)room, "%s", value);
            fclose(file);
            return;
        }
        if (file) fclose(file);
    }
}

/* An input as good as any: what it holds does not change the time. */
static void fill(mpr_pass *pass)
{
    uint32_t state = 1;
    for (uint64_t i = 0; i < mpr_values(&pass->slots[0]); i++) {
        state = state * 1664525u + 1013904223u;
        pass->picture[i] = (float)(state >> 8) * 0x1p-24f;
    }
}

/* Median milliseconds of each step over passes that run all steps in order. 0 or -1. */
static int time_steps(mpr_pass *pass, int repeats, double *median)
{
    const int steps = pass->program->steps;
    double *taken = malloc((size_t)steps * repeats * sizeof *taken + 1);
    if (!taken) return -1;
    for (int r = -WARM_UP; r < repeats; r++) {
        pass->tensors[0].known = 0;
        for (int n = 0; n < steps; n++) {
            const double begin = mpr_now_ms();
            mpr_pass_step(pass, &pass->steps[n]);
            if (r >= 0) taken[(size_t)n * repeats + r] = mpr_now_ms() - begin;
        }
    }
    for (int n = 0; n < steps; n++)
        median[n] = pass->steps[n].operation == MPB_YOLO ? 0 : mpr_median(taken + (size_t)n * repeats, repeats);
    free(taken);
    return 0;
}

/* Milliseconds by signature: texts of the bundle, equal ones at the same place. */
typedef struct {
    uint32_t *signature;
    double *ms, *sum;
    int *seen; /* number of the last program that had it */
    int count;
} table;

static int row_of(table *t, uint32_t signature)
{
    for (int i = 0; i < t->count; i++)
        if (t->signature[i] == signature) return i;
    t->signature[t->count] = signature;
    t->ms[t->count] = -1;
    t->seen[t->count] = -1;
    return t->count++;
}

/* Adds a program's steps: the smallest time of those that several programs have, as whatever disturbs only adds. */
static void take_in(table *t, const mpr_pass *pass, const double *ms, int number, int replace)
{
    const int steps = pass->program->steps;
    for (int n = 0; n < steps; n++) {
        const int row = row_of(t, pass->steps[n].signature);
        t->sum[row] = (t->seen[row] == number ? t->sum[row] : 0) + ms[n];
        t->seen[row] = number;
    }
    for (int n = 0; n < steps; n++) {
        const int row = row_of(t, pass->steps[n].signature);
        if (t->ms[row] < 0 || (replace && t->sum[row] < t->ms[row])) t->ms[row] = t->sum[row];
    }
}

static double predicted(table *t, const mpr_pass *pass)
{
    double total = 0;
    for (int n = 0; n < pass->program->steps; n++) total += t->ms[row_of(t, pass->steps[n].signature)];
    return total;
}

static double whole_ms(mpr_pass *pass, int repeats, double *least)
{
    double *taken = malloc((size_t)repeats * sizeof *taken), median = 0;
    char error[MPR_ERROR];
    for (int r = -WARM_UP; taken && r < repeats; r++) {
        const double begin = mpr_now_ms();
        mpr_pass_run(pass, error);
        if (r >= 0) taken[r] = mpr_now_ms() - begin;
    }
    if (taken) {
        median = mpr_median(taken, repeats);
        if (least) *least = taken[0];
    }
    free(taken);
    return median;
}

static void write_head(FILE *out, const mprun *net)
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
    fprintf(out, ", \"isa\": \"%s\", \"threads\": %d, \"batch\": 1},\n", mp_table_name(net->weights.table),
            net->weights.threads);
}

static int measure(mprun *net, table *t, double *ms, int repeats, FILE *checks, double *mean, double *largest)
{
    const mpr_file *file = &net->file;
    int done = 0;
    for (int purpose = MPB_COVERING; purpose <= MPB_CHECK; purpose++)
        for (int64_t p = 0; p < file->count[MPB_PROGRAMS]; p++) {
            if (file->programs[p].purpose != purpose) continue;
            mpr_pass pass;
            if (mpr_pass_open(&pass, &net->weights, p, net->error)) return -1;
            fill(&pass);
            const int failed = time_steps(&pass, repeats, ms);
            take_in(t, &pass, ms, (int)p, purpose == MPB_COVERING);
            if (purpose == MPB_CHECK) {
                const double measured = whole_ms(&pass, repeats, 0), expected = predicted(t, &pass);
                const double off = measured > 0 ? 100 * (expected / measured - 1) : 0, size = off < 0 ? -off : off;
                fprintf(checks, "%s\n  {\"precision\": ", done++ ? "," : "");
                mpr_json_text(checks, mpr_text(file, file->programs[p].key));
                fprintf(checks, ", \"measured_ms\": %.17g, \"predicted_ms\": %.17g}", measured, expected);
                *mean += size;
                *largest = size > *largest ? size : *largest;
            }
            mpr_pass_close(&pass);
            if (failed) return mpr_fail(net->error, "no memory");
        }
    *mean = done ? *mean / done : 0;
    return 0;
}

int mpr_profile(mprun *net, const char *path, int repeats)
{
    const mpr_file *file = &net->file;
    const size_t most = (size_t)file->count[MPB_STEPS] + 1;
    table t = {malloc(most * sizeof *t.signature), malloc(most * sizeof *t.ms), malloc(most * sizeof *t.sum),
               malloc(most * sizeof *t.seen), 0};
    double *ms = malloc(most * sizeof *ms), mean = 0, largest = 0;
    char *text = 0;
    size_t bytes = 0;
    FILE *checks = open_memstream(&text, &bytes);
    mpr_output out;
    int result = -1;
    if (file->count[MPB_PROGRAMS] < 2)
        mpr_fail(net->error, "%s: was exported without programs to time; export it again without --no-profile",
                 file->name);
    else if (!t.signature || !t.ms || !t.sum || !t.seen || !ms || !checks)
        mpr_fail(net->error, "no memory");
    else if (!measure(net, &t, ms, repeats, checks, &mean, &largest) && !mpr_output_open(&out, path, net->error)) {
        fflush(checks);
        write_head(out.file, net);
        fprintf(out.file, " \"steps\": {");
        for (int i = 0; i < t.count; i++) {
            fputs(i ? ",\n  " : "\n  ", out.file);
            mpr_json_text(out.file, mpr_text(file, t.signature[i]));
            fprintf(out.file, ": %.17g", t.ms[i]);
        }
        fprintf(out.file,
                "\n },\n \"checks\": [%s\n ],\n \"error_percent\": {\"mean\": %.17g, \"largest\": %.17g}\n}\n", text,
                mean, largest);
        result = mpr_output_finish(&out, net->error);
        if (!result && path)
            printf(
                "%d steps on %s, %d threads; predictions are off by %.1f %% on average, %.1f %% at most\nwritten to %s\n",
                t.count, mp_table_name(net->weights.table), net->weights.threads, mean, largest, path);
    }
    if (checks) fclose(checks);
    free(text);
    free(t.signature);
    free(t.ms);
    free(t.sum);
    free(t.seen);
    free(ms);
    return result;
}

int mpr_bench(mprun *net, int repeats, int json)
{
    const int steps = net->pass.program->steps;
    double *ms = malloc(((size_t)steps + 1) * sizeof *ms), least = 0;
    if (!ms) return mpr_fail(net->error, "no memory");
    fill(&net->pass);
    if (mpr_pass_run(&net->pass, net->error) || time_steps(&net->pass, repeats, ms)) {
        free(ms);
        return -1;
    }
    const double median = whole_ms(&net->pass, repeats, &least);
    const char *isa = mp_table_name(net->weights.table);
    if (json)
        printf(
            "{\"isa\": \"%s\", \"threads\": %d, \"median_ms\": %.17g, \"min_ms\": %.17g, \"images\": %d, \"steps\": [",
            isa, net->weights.threads, median, least, repeats);
    else
        printf("%s, %d threads: %.3f ms (median of %d), %.3f ms at least\n", isa, net->weights.threads, median, repeats,
               least);
    for (int n = 0, first = 1; n < steps; n++) {
        const mpb_step *step = &net->pass.steps[n];
        if (step->operation == MPB_YOLO) continue;
        const char *layer = mpr_layer_name(&net->file, step->layer);
        if (json)
            printf("%s{\"step\": \"%s for %s\", \"layer\": %d, \"ms\": %.17g}", first ? "" : ", ",
                   mpr_operation_name(step), layer, (int)step->layer, ms[n]);
        else
            printf("  %8.3f ms  %s for %s\n", ms[n], mpr_operation_name(step), layer);
        first = 0;
    }
    if (json) printf("]}\n");
    free(ms);
    return 0;
}
