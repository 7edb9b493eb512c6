/* mprun: a finished network on a board, without Python. docs/mprun.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../team.h"
#include "commands.h"

enum { DONE = 0, CHECK_FAILED = 1, BAD_INPUT = 2 };
static const char *const RESIZES[] = {[MP_STRETCH] = "stretch", [MP_LETTERBOX] = "letterbox", [MP_CROP] = "crop"};

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
    "  --resize MODE          stretch, letterbox or crop [as the bundle says]\n"
    "  --isa LEVEL            ISA level [$MPNET_ISA, else the best]\n"
    "  --threads N            [all cores]\n"
    "  --repeats N            passes that are timed [15]\n"
    "  -o FILE                where --profile and --evaluate write\n"
    "  --help, --version\n";

typedef struct {
    const char *bundle, *evaluate, *out, *isa;
    int bench, profile, info, json, threads, repeats, resize;
    double confidence, nms;
    mpr_paths images;
} options;

static int number(const char *option, const char *text, double low, double high, double *value, char *error)
{
    char *end;
    *value = strtod(text, &end);
    if (*text && !*end && *value >= low && *value <= high) return 0;
    return mpr_fail(error, "%s: '%.40s' is no number from %g to %g", option, text, low, high);
}

static int parse(int count, char **words, options *o, char *error)
{
    for (int i = 1; i < count; i++) {
        const char *word = words[i];
        static const char *const VALUED[] = {"--evaluate", "--confidence", "--nms",     "--resize",
                                             "--isa",      "--threads",    "--repeats", "-o"};
        const char *value = 0;
        double n = 0;
        int failed = 0;
        for (size_t v = 0; v < sizeof VALUED / sizeof *VALUED; v++)
            if (strcmp(word, VALUED[v]) == 0 && !(value = words[++i]))
                return mpr_fail(error, "%s: needs a value; see mprun --help", word);
        if (strcmp(word, "--json") == 0)
            o->json = 1;
        else if (strcmp(word, "--bench") == 0)
            o->bench = 1;
        else if (strcmp(word, "--profile") == 0)
            o->profile = 1;
        else if (strcmp(word, "--info") == 0)
            o->info = 1;
        else if (strcmp(word, "--evaluate") == 0)
            o->evaluate = value;
        else if (strcmp(word, "--isa") == 0)
            o->isa = value;
        else if (strcmp(word, "-o") == 0)
            o->out = value;
        else if (strcmp(word, "--confidence") == 0)
            failed = number(word, value, 0, 0.999999, &o->confidence, error);
        else if (strcmp(word, "--nms") == 0)
            failed = number(word, value, 0, 1, &o->nms, error);
        else if (strcmp(word, "--threads") == 0) {
            failed = number(word, value, 1, 1024, &n, error);
            o->threads = (int)n;
        } else if (strcmp(word, "--repeats") == 0) {
            failed = number(word, value, 1, 100000, &n, error);
            o->repeats = (int)n;
        } else if (strcmp(word, "--resize") == 0) {
            for (o->resize = MP_CROP; o->resize >= 0 && strcmp(value, RESIZES[o->resize]) != 0;) o->resize--;
            if (o->resize < 0) failed = mpr_fail(error, "--resize: '%.40s' is none of stretch, letterbox, crop", value);
        } else if (word[0] == '-' && word[1])
            failed = mpr_fail(error, "%.60s: unknown option; see mprun --help", word);
        else if (!o->bundle)
            o->bundle = word;
        else
            failed = mpr_paths_add(&o->images, word, error);
        if (failed) return -1;
    }
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
    fprintf(out, "%s: %d objects\n", path, count);
    for (int i = 0; i < count; i++) {
        const mprun_box *b = &boxes[i];
        const int pad = 20 - mpr_width(b->name);
        fprintf(out, "  %.3f  %s%*s %7.1f %7.1f %7.1f %7.1f\n", (double)b->score, b->name, pad > 0 ? pad : 0, "",
                (double)b->x, (double)b->y, (double)b->width, (double)b->height);
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

enum { ROOM = 1 << 21 }; /* one huge page holds most images, and what decoding needs */

/* What a process begins with, the first image and the bundle, done at once where there are two threads. */
typedef struct {
    const options *given;
    mprun *net;
    mpr_image image;
    int failed; /* the image */
    char error[MPR_ERROR], image_error[MPR_ERROR];
} beginning;

static void open_bundle(beginning *b)
{
    const options *o = b->given;
    b->net = mprun_open(o->bundle, o->isa, o->threads, b->error, sizeof b->error);
}

static void read_first(beginning *b)
{
    void *room = mpr_take(ROOM);
    b->failed = mpr_image_read(&b->image, b->given->images.path[0], (mpr_room){room, room ? ROOM : 0}, b->image_error);
    if (b->image.rgb == room)
        b->image.own = room;
    else
        free(room);
}

/* The image takes longer than most bundles, so it comes first: the second thread is on its way meanwhile. */
static void begin(const void *context, int64_t item, int member)
{
    beginning *b = *(beginning *const *)context;
    (void)member;
    if (item == 0) {
        read_first(b);
        return;
    }
    open_bundle(b);
    /* Not all of it: what decoding has meanwhile would raise the most memory that is ever used. */
    if (b->net) mpr_pass_touch(&b->net->pass, 2 * (size_t)ROOM);
}

static int read_image(mprun *net, const char *path, beginning *first, mpr_image *image)
{
    if (!first) return mpr_image_read(image, path, mpr_room_of(net), net->error);
    *image = first->image;
    first->image = (mpr_image){0};
    return first->failed ? mpr_fail(net->error, "%s", first->image_error) : 0;
}

static int detect(mprun *net, const options *o, beginning *first)
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

static int run(mprun *net, const options *o, beginning *first)
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
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0) return fputs(USAGE, stdout) < 0;
        if (strcmp(words[i], "--version") == 0)
            return printf("mprun, bundles of version %d, %s\n", MPB_VERSION, mp_compiler()) < 0;
    }
    int failed = parse(count, words, &o, error);
    if (!failed && !o.bundle) {
        const mp_table *table = mpr_table(o.isa, error);
        failed = table ? 0 : -1;
        if (table) mpr_info(0, table, o.threads ? o.threads : mpr_cores(), o.json);
    } else if (!failed) {
        if (!o.evaluate && o.confidence < 0) o.confidence = 0.25;
        beginning first = {.given = &o}, *const at = &first;
        const int beside = o.images.count && (o.threads ? o.threads : mpr_cores()) > 1;
        if (beside)
            mp_share(2, 2, begin, &at);
        else
            open_bundle(&first);
        mprun *net = first.net;
        failed = net ? run(net, &o, beside ? &first : 0) : -1;
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
