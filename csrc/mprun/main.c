/* SPDX-License-Identifier: MIT */
/* mprun: a finished network on a board, without Python. docs/mprun.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "../team.h"
#include "commands.h"

enum { DONE = 0, CHECK_FAILED = 1, BAD_INPUT = 2 };
static const char *const RESIZES[] = {[MP_STRETCH] = "stretch",
                                      [MP_LETTERBOX] = "letterbox",
                                      [MP_CROP] = "crop",
                                      [MP_LETTERBOX_OPENCV] = "letterbox_opencv"};

static const char USAGE[] =
    "usage: mprun BUNDLE IMAGE...                    objects in JPEG or PPM images, and folders of them\n"
    "       mprun BUNDLE --bench                       milliseconds of a pass and of its steps\n"
    "       mprun BUNDLE --profile -o board.json       times of every step of every configuration, for `mpnet sweep`\n"
    "       mprun BUNDLE --evaluate LIST -o FILE.json  detections of a folder or list of images, for `mpnet compare`\n"
    "       mprun [BUNDLE] --info                      what this CPU offers, what the bundle holds\n"
    "\n"
    "BUNDLE: made by `mpnet export RUN --to bundle -o net.mpnet`. LIST: a folder, or a file with an image a line (`PATH` or\n"
    "`ID PATH`).\n"
    "\n"
    "  --json                 one JSON document\n"
    "  --confidence X         least score of a box [0.25; --evaluate: as the bundle says]\n"
    "  --nms X                overlap beyond which the weaker of two boxes of a class goes [as the bundle says]\n"
    "  --resize MODE          stretch, letterbox, letterbox_opencv or crop [as the bundle says]\n"
    "  --isa LEVEL            ISA level [$MPNET_ISA, else the best]\n"
    "  --threads N            [all cores]\n"
    "  --repeats N            passes that are timed [15]\n"
    "  -o FILE                where --profile and --evaluate write\n"
    "  --help, --version\n";

typedef struct {
    const char *bundle, *evaluate, *out, *isa;
    int bench, profile, info, json, help, version, threads, repeats, resize;
    double confidence, nms;
    mpr_paths images;
} options;

static int parse_number(const char *option, double low, double high, double *value, char *error)
{
    char *end;
    *value = strtod(optarg, &end);
    if (*optarg && !*end && *value >= low && *value <= high) return 0;
    return mpr_fail(error, "%s: '%.40s' is no number from %g to %g", option, optarg, low, high);
}

static int parse_integer(const char *option, int high, int *value, char *error)
{
    char *end;
    const long n = strtol(optarg, &end, 10);
    *value = (int)n;
    if (*optarg && !*end && n >= 1 && n <= high) return 0;
    return mpr_fail(error, "%s: '%.40s' is no whole number from 1 to %d", option, optarg, high);
}

static int parse_resize(int *mode, char *error)
{
    for (*mode = MP_LETTERBOX_OPENCV; *mode >= 0; --*mode)
        if (strcmp(optarg, RESIZES[*mode]) == 0) return 0;
    return mpr_fail(error, "--resize: '%.40s' is none of stretch, letterbox, letterbox_opencv, crop", optarg);
}

static int parse(int count, char **words, options *o, char *error)
{
    /* What takes a value is known by a letter; only `h` and `o` are options of one letter themselves. */
    const struct option OPTIONS[] = {{"json", no_argument, &o->json, 1},
                                     {"bench", no_argument, &o->bench, 1},
                                     {"profile", no_argument, &o->profile, 1},
                                     {"info", no_argument, &o->info, 1},
                                     {"help", no_argument, 0, 'h'},
                                     {"version", no_argument, &o->version, 1},
                                     {"evaluate", required_argument, 0, 'e'},
                                     {"isa", required_argument, 0, 'i'},
                                     {"confidence", required_argument, 0, 'c'},
                                     {"nms", required_argument, 0, 'n'},
                                     {"resize", required_argument, 0, 'r'},
                                     {"threads", required_argument, 0, 't'},
                                     {"repeats", required_argument, 0, 'p'},
                                     {0}};
    int failed = 0;
    opterr = 0; /* messages are ours */
    for (int option; !failed && (option = getopt_long(count, words, ":ho:", OPTIONS, 0)) != -1;) switch (option) {
        case 0: break; /* a flag was set */
        case 'h': o->help = 1; break;
        case 'o': o->out = optarg; break;
        case 'e': o->evaluate = optarg; break;
        case 'i': o->isa = optarg; break;
        case 'c': failed = parse_number("--confidence", 0, 0.999999, &o->confidence, error); break;
        case 'n': failed = parse_number("--nms", 0, 1, &o->nms, error); break;
        case 'r': failed = parse_resize(&o->resize, error); break;
        case 't': failed = parse_integer("--threads", 1024, &o->threads, error); break;
        case 'p': failed = parse_integer("--repeats", 100000, &o->repeats, error); break;
        case ':': failed = mpr_fail(error, "%.60s: needs a value; see mprun --help", words[optind - 1]); break;
        default: /* of several letters behind one dash, getopt names the unknown one alone */
            failed = optopt && strncmp(words[optind - 1], "--", 2) != 0
                         ? mpr_fail(error, "-%c: unknown option; see mprun --help", optopt)
                         : mpr_fail(error, "%.60s: unknown option; see mprun --help", words[optind - 1]);
        }
    if (failed) return -1;
    if (o->help || o->version) return 0;
    if (optind < count) o->bundle = words[optind++];
    for (; optind < count; optind++)
        if (mpr_paths_add(&o->images, words[optind], error)) return -1;
    const int modes = o->bench + o->profile + o->info + (o->evaluate != 0) + (o->images.count > 0);
    if (!o->bundle && !o->info) return mpr_fail(error, "name a bundle; see mprun --help");
    if (modes != 1)
        return mpr_fail(error,
                        modes ? "images, --bench, --profile, --evaluate and --info go one at a time"
                              : "name images, or one of --bench, --profile, --evaluate and --info; see mprun --help");
    if ((o->profile || o->evaluate) && !o->out)
        return mpr_fail(error, "--%s needs -o FILE", o->profile ? "profile" : "evaluate");
    return 0;
}

static void json_file(FILE *out, const char *path, int width, int height, const mprun_box *boxes, int count, int first)
{
    fprintf(out, "%s\n    {\"path\": ", first ? "" : ",");
    mpr_json_text(out, path);
    fprintf(out, ", \"kind\": \"picture\", \"width\": %d, \"height\": %d, \"detections\": [", width, height);
    for (int i = 0; i < count; i++) {
        const mprun_box *b = &boxes[i];
        const double numbers[] = {(double)b->score, (double)b->x, (double)b->y, (double)b->width, (double)b->height};
        fprintf(out, "%s\n      {\"name\": ", i ? "," : "");
        mpr_json_text(out, b->name);
        fprintf(out, ", \"category\": %d, \"score\": ", b->category);
        for (int k = 0; k < 5; k++) {
            mpr_json_number(out, numbers[k]);
            fputs(k == 0 ? ", \"box\": [" : k < 4 ? ", " : "]}", out);
        }
    }
    fprintf(out, "], \"out\": null}");
}

static void text_file(FILE *out, const char *path, const mprun_box *boxes, int count)
{
    mpr_plain_text(out, path);
    fprintf(out, ": %d objects\n", count);
    for (int i = 0; i < count; i++) {
        const mprun_box *b = &boxes[i];
        const int pad = 20 - mpr_width(b->name);
        fprintf(out, "  %.3f  ", (double)b->score);
        mpr_plain_text(out, b->name);
        fprintf(out, "%*s %7.1f %7.1f %7.1f %7.1f\n", pad > 0 ? pad : 0, "", (double)b->x, (double)b->y,
                (double)b->width, (double)b->height);
    }
    fflush(out);
}

static void json_head(FILE *out, const mprun *net, const options *o)
{
    const mpr_file *file = &net->file;
    const mpb_network *n = file->network;
    fprintf(out, "{\n  \"cfg\": ");
    mpr_json_text(out, mpr_text(file, n->cfg));
    fprintf(out, ",\n  \"precision\": ");
    mpr_json_text(out, mpr_text(file, file->programs[0].key));
    fprintf(out,
            ",\n  \"protocol\": {\"resize\": \"%s\", \"confidence\": ", RESIZES[o->resize < 0 ? n->resize : o->resize]);
    mpr_json_number(out, o->confidence);
    fprintf(out, ", \"nms\": ");
    mpr_json_number(out, o->nms < 0 ? n->nms : o->nms);
    static const char *const WORDS[] = {"nms_kind", "dialect", "batch_norm"};
    const char *word = mpr_text(file, n->nms_name);
    for (int i = 0; i < 3; i++, word = mpr_next_text(file, word)) {
        fprintf(out, ", \"%s\": ", WORDS[i]);
        mpr_json_text(out, word);
    }
    fprintf(out, ", \"input\": [%d, %d, %d]},\n  \"files\": [", (int)n->in_h, (int)n->in_w, (int)n->in_c);
}

enum { IMAGE_BYTES = 1 << 21 }; /* one huge page holds most images, and what decoding needs */

/* What a process begins with, the first image and the bundle, done at once where there are two threads. */
typedef struct {
    const options *options;
    mprun *net;
    mpr_image image;
    int failed; /* the image */
    char error[MPR_ERROR], image_error[MPR_ERROR];
} startup;

static void open_bundle(startup *b)
{
    const options *o = b->options;
    b->net = mprun_open(o->bundle, o->isa, o->threads, b->error, sizeof b->error);
}

static void read_first(startup *b)
{
    void *memory = mpr_allocate(IMAGE_BYTES);
    b->failed = mpr_image_read(&b->image, b->options->images.path[0], (mpr_memory){memory, memory ? IMAGE_BYTES : 0},
                               b->image_error);
    if (b->image.rgb == memory)
        b->image.allocated = memory;
    else
        free(memory);
}

/* The image takes longer than most bundles, so it comes first: the second thread is on its way meanwhile. */
static void begin(const void *context, int64_t item, int member)
{
    startup *b = *(startup *const *)context;
    (void)member;
    if (item == 0) {
        read_first(b);
        return;
    }
    open_bundle(b);
    /* Not all of it: what decoding has meanwhile would raise the most memory that is ever used. */
    if (b->net) mpr_pass_touch(&b->net->pass, 2 * (size_t)IMAGE_BYTES);
}

static int read_image(mprun *net, const char *path, startup *first, mpr_image *image)
{
    if (!first) return mpr_image_read(image, path, mpr_idle_arena(net), net->error);
    *image = first->image;
    first->image = (mpr_image){0};
    return first->failed ? mpr_fail(net->error, "%s", first->image_error) : 0;
}

static int detect(mprun *net, const options *o, startup *first)
{
    /* One document or none: it is complete before anything is printed. */
    char *text = 0;
    size_t bytes = 0;
    FILE *out = o->json ? open_memstream(&text, &bytes) : stdout;
    int result = out ? 0 : mpr_fail(net->error, "no memory");
    if (out && o->json) json_head(out, net, o);
    for (int i = 0; i < o->images.count && !result; i++) {
        mpr_image image;
        const char *path = o->images.path[i];
        const int unread = read_image(net, path, i ? 0 : first, &image);
        if (!unread) mpr_note_flaws(path, image.flaws);
        const int count = unread ? -1 : mpr_detect(net, &image, o->confidence, o->nms, o->resize);
        if (count < 0) {
            result = -1;
            break;
        }
        mpr_best_first(net, count);
        if (o->json)
            json_file(out, path, image.width, image.height, net->boxes, count, i == 0);
        else
            text_file(out, path, net->boxes, count);
    }
    if (out && o->json) {
        fprintf(out, "\n  ]\n}\n");
        fclose(out);
        if (!result) fwrite(text, 1, bytes, stdout);
        free(text);
    }
    return result;
}

static int run(mprun *net, const options *o, startup *first)
{
    if (o->bench) return mpr_bench(net, o->repeats, o->json);
    if (o->profile) return mpr_profile(net, o->out, o->repeats);
    if (o->evaluate) return mpr_evaluate(net, o->evaluate, o->out, o->confidence, o->nms, o->resize);
    if (o->info) {
        mpr_info(net, net->weights.table, net->weights.threads, o->json);
        return 0;
    }
    return detect(net, o, first);
}

int main(int count, char **words)
{
    options o = {.isa = getenv("MPNET_ISA"), .repeats = 15, .resize = -1, .confidence = -1, .nms = -1};
    char error[MPR_ERROR] = "";
    int failed = parse(count, words, &o, error);
    if (!failed && o.help) return fputs(USAGE, stdout) < 0;
    if (!failed && o.version) return printf("mprun, bundles of version %d, %s\n", MPB_VERSION, mp_compiler()) < 0;
    if (!failed && !o.bundle) {
        const mp_table *table = mpr_table(o.isa, error);
        failed = table ? 0 : -1;
        if (table) mpr_info(0, table, o.threads ? o.threads : mpr_cores(), o.json);
    } else if (!failed) {
        if (!o.evaluate && o.confidence < 0) o.confidence = 0.25;
        startup first = {.options = &o}, *const context = &first;
        const int concurrent = o.images.count && (o.threads ? o.threads : mpr_cores()) > 1;
        if (concurrent)
            mp_share(2, 2, begin, &context);
        else
            open_bundle(&first);
        mprun *net = first.net;
        failed = net ? run(net, &o, concurrent ? &first : 0) : -1;
        mpr_image_drop(&first.image);
        if (failed) snprintf(error, sizeof error, "%s", net ? net->error : first.error);
        mprun_close(net);
    }
    mpr_paths_free(&o.images);
    if (!failed && (ferror(stdout) || fflush(stdout)))
        failed = mpr_fail(error, "standard output: cannot be written (%s)", strerror(errno));
    if (failed) fprintf(stderr, "mprun: %s\n", error);
    return failed == MPR_POOR ? CHECK_FAILED : failed ? BAD_INPUT : DONE;
}
