/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "commands.h"

static int add_path(mpr_paths *paths, const char *path, char *error)
{
    if (paths->count == paths->capacity) {
        paths->capacity = paths->capacity ? 2 * paths->capacity : 64;
        char **larger = realloc(paths->path, (size_t)paths->capacity * sizeof *larger);
        if (!larger) return mpr_fail(error, "no memory");
        paths->path = larger;
    }
    char *copy = strdup(path);
    if (!copy) return mpr_fail(error, "no memory");
    paths->path[paths->count++] = copy;
    return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int is_image(const char *name)
{
    static const char *const SUFFIXES[] = {".jpg", ".jpeg", ".ppm", ".pgm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof SUFFIXES / sizeof *SUFFIXES; i++)
        if (strcasecmp(dot, SUFFIXES[i]) == 0) return 1;
    return 0;
}

int mpr_paths_add(mpr_paths *paths, const char *path, char *error)
{
    struct stat status;
    if (stat(path, &status) != 0) return mpr_fail(error, "%s: no such file or folder; check the path", path);
    if (!S_ISDIR(status.st_mode)) return add_path(paths, path, error);
    DIR *folder = opendir(path);
    if (!folder) return mpr_fail(error, "%s: cannot be opened (%s)", path, strerror(errno));
    const int first = paths->count;
    const size_t length = strlen(path);
    int result = 0;
    for (struct dirent *entry; !result && (entry = readdir(folder)) != 0;) {
        char file[4096];
        if (!is_image(entry->d_name)) continue;
        snprintf(file, sizeof file, "%s%s%s", path, length && path[length - 1] == '/' ? "" : "/", entry->d_name);
        result = add_path(paths, file, error);
    }
    closedir(folder);
    if (!result && paths->count == first) result = mpr_fail(error, "%s: holds no JPEG or PPM images", path);
    qsort(paths->path + first, (size_t)(paths->count - first), sizeof *paths->path, by_name);
    return result;
}

void mpr_paths_free(mpr_paths *paths)
{
    for (int i = 0; i < paths->count; i++) free(paths->path[i]);
    free(paths->path);
}

/* The best so many of an image stay; equal scores in their order. */
static int keep_best(mprun *net, int count, int limit)
{
    if (limit < 1 || count <= limit) return count;
    int count_kept = 0;
    for (int i = 0; i < count; i++) { /* rank: better ones, and equal ones before it */
        int rank = 0;
        for (int k = 0; k < count && rank < limit; k++)
            rank += net->selected.score[k] > net->selected.score[i] ||
                    (k < i && net->selected.score[k] == net->selected.score[i]);
        if (rank < limit) net->boxes[count_kept++] = net->boxes[i];
    }
    return count_kept;
}

static int evaluate_one(mprun *net, const char *path, long long id, FILE *out, int *written, double confidence,
                        double nms, int resize)
{
    mpr_image image;
    const mpb_network *n = net->file.network;
    if (mpr_image_read(&image, path, mpr_idle_arena(net), net->error)) return -1;
    mpr_note_flaws(path, image.flaws);
    int count = mpr_detect(net, &image, confidence, nms, resize);
    if (count < 0) return -1;
    count = keep_best(net, count, n->max_detections);
    for (int i = 0; i < count; i++) {
        const mprun_box *box = &net->boxes[i];
        fprintf(out, "%s\n{\"image_id\":%lld,\"category_id\":%d,\"bbox\":[%.9g,%.9g,%.9g,%.9g],\"score\":%.9g}",
                (*written)++ ? "," : "", id, (int)net->file.places[n->category_ids + box->category], (double)box->x,
                (double)box->y, (double)box->width, (double)box->height, (double)box->score);
    }
    return 0;
}

/* The lines of a list; `id path` sets the number that an image has in the file. */
static int read_list(mpr_paths *paths, const char *list, char *error)
{
    size_t bytes;
    uint8_t *data = mpr_read(list, 1 << 26, &bytes, error);
    if (!data) return -1;
    char *text = realloc(data, bytes + 1);
    if (!text) {
        free(data);
        return mpr_fail(error, "%s: no memory", list);
    }
    text[bytes] = 0;
    int result = 0;
    char *rest = text;
    for (char *line; !result && (line = strsep(&rest, "\r\n")) != 0;)
        if (*line) result = add_path(paths, line, error);
    free(text);
    return result ? result : paths->count ? 0 : mpr_fail(error, "%s: names no images; write one a line", list);
}

int mpr_evaluate(mprun *net, const char *list, const char *out_path, double confidence, double nms, int resize)
{
    struct stat status;
    mpr_paths paths = {0};
    mpr_output out;
    int written = 0;
    const int folder = stat(list, &status) == 0 && S_ISDIR(status.st_mode);
    int result = folder ? mpr_paths_add(&paths, list, net->error) : read_list(&paths, list, net->error);
    if (!result) result = mpr_output_open(&out, out_path, net->error);
    if (result) {
        mpr_paths_free(&paths);
        return -1;
    }
    fputc('[', out.file);
    for (int i = 0; i < paths.count && !result; i++) {
        char *path = paths.path[i];
        long long id = i + 1;
        const size_t digits = folder ? 0 : strspn(path, "0123456789");
        if (digits && digits < 18 && (path[digits] == ' ' || path[digits] == '\t')) {
            id = atoll(path);
            path += digits + strspn(path + digits, " \t");
        }
        result = evaluate_one(net, path, id, out.file, &written, confidence, nms, resize);
    }
    fputs(written ? "\n]\n" : "]\n", out.file);
    mpr_paths_free(&paths);
    if (!result) return mpr_output_finish(&out, net->error);
    mpr_output_drop(&out);
    return -1;
}
