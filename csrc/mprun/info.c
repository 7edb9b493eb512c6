/* SPDX-License-Identifier: MIT */
#include <string.h>
#include "commands.h"
#include "../table.h"

/* The level that this CPU runs best: what its fp16 and int8 cost. */
static const mp_table *best_table(void)
{
    int i = 0;
    while (!mp_table_usable(mp_table_at(i))) i++; /* scalar is, at the latest */
    return mp_table_at(i);
}

static const char *feature_words(char *text, size_t capacity)
{
    const char *words;
    *text = 0;
    for (int i = 0; (words = mp_cpu_feature(i)) != 0; i++)
        snprintf(text + strlen(text), capacity - strlen(text), "%s%s", i ? " " : "", words);
    return text;
}

static void print_usable(const char *quote)
{
    for (int i = 0, first = 1; i < mp_table_count(); i++) {
        if (!mp_table_usable(mp_table_at(i))) continue;
        printf("%s%s%s%s", first ? "" : ", ", quote, mp_table_name(mp_table_at(i)), quote);
        first = 0;
    }
}

/* The first `bytes` bytes, at most 16, of a text that need not end there. */
static void print_prefix(const char *text, int bytes)
{
    char copy[17];
    snprintf(copy, sizeof copy, "%.*s", bytes, text);
    mpr_plain_text(stdout, copy);
}

static void print_packed_levels(const mpr_file *file, const char *quote)
{
    int first = 1;
    for (int64_t i = 0; i < file->count[MPB_PACKED]; i++) {
        int is_listed = 0;
        for (int64_t k = 0; k < i && !is_listed; k++)
            is_listed = strncmp(file->packed[k].table, file->packed[i].table, 16) == 0;
        if (is_listed) continue;
        printf("%s%s", first ? "" : ", ", quote);
        print_prefix(file->packed[i].table, 16);
        printf("%s", quote);
        first = 0;
    }
}

static void text_info(const mprun *net, const char *cpu, const mp_table *table, int threads)
{
    char text[128];
    printf("cpu        %s\nlevel      %s (usable: ", cpu, mp_table_name(table));
    print_usable("");
    printf(")\nthreads    %d\nfeatures   %s\nfp16       %s\nint8       %s\ncompiler   %s\n", threads,
           feature_words(text, sizeof text), best_table()->fp16, best_table()->int8, mp_compiler());
    if (!net) return;
    const mpr_file *file = &net->file;
    const mpb_network *n = file->network;
    printf("bundle     ");
    mpr_plain_text(stdout, file->name);
    printf(", %llu bytes\nnetwork    ", (unsigned long long)file->bytes);
    mpr_plain_text(stdout, mpr_text(file, n->cfg));
    printf(", %d x %d x %d, %d classes, cfg ", (int)n->in_w, (int)n->in_h, (int)n->in_c, (int)n->classes);
    print_prefix(mpr_text(file, n->cfg_digest), 12);
    printf(", weights ");
    print_prefix(mpr_text(file, n->weights_digest), 12);
    printf("\nprecision  ");
    mpr_plain_text(stdout, mpr_text(file, file->programs[0].key));
    printf("\n");
    printf("memory     %llu bytes of tensors; weights: %lld of %lld convolutions as they lie in the file",
           (unsigned long long)(file->programs[0].arena_bytes + mpr_slot_bytes(&net->pass.slots[0])),
           (long long)net->weights.mapped, (long long)(net->weights.mapped + net->weights.packed_here));
    printf("\npacked for ");
    print_packed_levels(file, "");
    printf("%s\n", file->count[MPB_PACKED] ? "" : "no level: weights are packed at the start");
}

static void json_info(const mprun *net, const char *cpu, const mp_table *table, int threads)
{
    char text[128];
    printf("{\"cpu\": ");
    mpr_json_text(stdout, cpu);
    printf(", \"isa\": \"%s\", \"usable\": [", mp_table_name(table));
    print_usable("\"");
    printf("], \"threads\": %d, \"features\": \"%s\", \"fp16\": ", threads, feature_words(text, sizeof text));
    mpr_json_text(stdout, best_table()->fp16);
    printf(", \"int8\": ");
    mpr_json_text(stdout, best_table()->int8);
    printf(", \"compiler\": ");
    mpr_json_text(stdout, mp_compiler());
    if (net) {
        const mpr_file *file = &net->file;
        printf(", \"bundle\": ");
        mpr_json_text(stdout, file->name);
        printf(", \"precision\": ");
        mpr_json_text(stdout, mpr_text(file, file->programs[0].key));
        printf(", \"arena_bytes\": %llu, \"packed\": [", (unsigned long long)file->programs[0].arena_bytes);
        print_packed_levels(file, "\"");
        printf("], \"mapped\": %lld, \"packed_here\": %lld, \"origin\": %.*s", (long long)net->weights.mapped,
               (long long)net->weights.packed_here, (int)file->count[MPB_ORIGIN], file->origin);
    }
    printf("}\n");
}

void mpr_info(const mprun *net, const mp_table *table, int threads, int json)
{
    char cpu[128];
    mpr_cpu_name(cpu, sizeof cpu);
    (json ? json_info : text_info)(net, cpu, table, threads);
}
