/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "output.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "file.h"

/* Bytes of the UTF-8 character that begins here, 0 when none does. */
static int utf8_length(const unsigned char *c)
{
    const int continuation_bytes = *c < 0x80                 ? 0
                                   : *c >= 0xc2 && *c < 0xe0 ? 1
                                   : *c >= 0xe0 && *c < 0xf0 ? 2
                                   : *c >= 0xf0 && *c < 0xf5 ? 3
                                                             : -1;
    for (int i = 1; i <= continuation_bytes; i++)
        if ((c[i] & 0xc0) != 0x80) return 0;
    if ((*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) || (*c == 0xf0 && c[1] < 0x90) ||
        (*c == 0xf4 && c[1] > 0x8f))
        return 0;
    return continuation_bytes + 1;
}

void mpr_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const void *)text; *c;) {
        const int bytes = utf8_length(c);
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\u%04x", *c);
        else if (bytes)
            fwrite(c, 1, (size_t)bytes, out);
        else
            fprintf(out, "\\udc%02x", *c);
        c += bytes ? bytes : 1;
    }
    fputc('"', out);
}

void mpr_json_number(FILE *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, 0) == value) break;
    }
    /* Python tells 1 from 1.0. */
    fprintf(out, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

void mpr_plain_text(FILE *out, const char *text)
{
    for (const char *c = text; *c;) {
        const int control = mpr_control(c);
        fputc(control ? '?' : *c, out);
        c += control ? control : 1;
    }
}

void mpr_note_flaws(const char *path, int flaws)
{
    static const char *const SENTENCES[] = {
        "a JPEG without its end marker; its pixels are all there",
        "a JPEG with bytes that belong to none of its parts, which are skipped; check that the image is whole"};
    for (int i = 0; i < 2; i++)
        if (flaws & 1 << i) {
            fputs("mprun: note: ", stderr);
            mpr_plain_text(stderr, path);
            fprintf(stderr, ": %s\n", SENTENCES[i]);
        }
}

int mpr_width(const char *text)
{
    int width = 0;
    for (const unsigned char *c = (const void *)text; *c; c++) width += (*c & 0xc0) != 0x80;
    return width;
}

static char *volatile unfinished; /* path of the file that must not stay when the program ends */

static void remove_unfinished(int number)
{
    if (unfinished) unlink(unfinished);
    raise(number); /* ends the program now: SA_RESETHAND */
}

static void remove_on_signals(char *path)
{
    static const int ENDS[] = {SIGHUP, SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = remove_unfinished, .sa_flags = SA_RESETHAND};
    struct sigaction previous;
    unfinished = path;
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) /* nohup's SIGHUP stays ignored */
        if (sigaction(ENDS[i], 0, &previous) == 0 && previous.sa_handler != SIG_IGN) sigaction(ENDS[i], &action, 0);
}

int mpr_output_open(mpr_output *out, const char *path, char *error)
{
    *out = (mpr_output){.file = stdout, .path = path};
    if (!path) return 0;
    if (snprintf(out->temporary_path, sizeof out->temporary_path, "%s.%d.part", path, (int)getpid()) >=
        (int)sizeof out->temporary_path)
        return mpr_fail(error, "%.80s...: the path is too long", path);
    remove_on_signals(out->temporary_path);
    out->file = fopen(out->temporary_path, "wb");
    if (out->file) return 0;
    unfinished = 0;
    return mpr_fail(error, "%s: cannot be written (%s); check the folder", path, strerror(errno));
}

int mpr_output_finish(mpr_output *out, char *error)
{
    int broken = ferror(out->file) | fflush(out->file);
    if (!out->path) return broken ? mpr_fail(error, "standard output: cannot be written (%s)", strerror(errno)) : 0;
    broken |= fsync(fileno(out->file));
    broken |= fclose(out->file);
    const int renamed = !broken && rename(out->temporary_path, out->path) == 0;
    if (!renamed) {
        mpr_fail(error, "%s: cannot be written (%s); check the folder", out->path, strerror(errno));
        unlink(out->temporary_path);
    }
    unfinished = 0;
    return renamed ? 0 : -1;
}

void mpr_output_drop(mpr_output *out)
{
    if (!out->path || !out->file) return;
    fclose(out->file);
    unlink(out->temporary_path);
    unfinished = 0;
}

double mpr_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int rising(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

double mpr_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, rising);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
