/* SPDX-License-Identifier: MIT */
/* Any words as mprun's command line: exit code 0, or 1 or 2 and one line; nothing outside its memory is touched, nothing is left in
 * memory or half written. Each byte of a file is one word of WORDS, or a text of the bytes behind it. */
#include <getopt.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#define main mprun_main
#include "mprun/main.c"
#undef main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const WORDS[] = {"net.mpnet",
                                    "image.jpg",
                                    "image.ppm",
                                    "images",
                                    "list.txt",
                                    "damaged.mpnet",
                                    "missing",
                                    "pipe",
                                    ".",
                                    "",
                                    "--bench",
                                    "--profile",
                                    "--info",
                                    "--json",
                                    "--help",
                                    "--version",
                                    "--evaluate",
                                    "-o",
                                    "out.json",
                                    "missing/out.json",
                                    "--isa",
                                    "auto",
                                    "scalar",
                                    "avx2",
                                    "--threads",
                                    "2",
                                    "--repeats",
                                    "1",
                                    "--confidence",
                                    "0.5",
                                    "--nms",
                                    "0.4",
                                    "--resize",
                                    "stretch",
                                    "letterbox",
                                    "crop",
                                    "--",
                                    "-",
                                    "-h",
                                    "-x",
                                    "--conf=0.1",
                                    "--threads=1",
                                    "--repeats=2",
                                    "--evaluate=images",
                                    "--isa=",
                                    "1e9",
                                    "-1",
                                    "nan",
                                    "inf",
                                    "0x1",
                                    "99999999999999999999",
                                    "1.5",
                                    "--i",
                                    "--json=1"};
enum { WORDS_COUNT = sizeof WORDS / sizeof *WORDS, MOST_WORDS = 24, MOST_LETTERS = 400 };

/* The next word, and how many bytes it took. Its text has no slash, and so names nothing elsewhere. */
static size_t next_word(const uint8_t *data, size_t size, char *word)
{
    const unsigned choice = data[0];
    if (choice < 4 * WORDS_COUNT) {
        strcpy(word, WORDS[choice % WORDS_COUNT]);
        return 1;
    }
    const size_t letters = size > 1 ? data[1] * (choice == 255 ? 8 : 1) % MOST_LETTERS : 0;
    const size_t count = size > 2 ? (letters < size - 2 ? letters : size - 2) : 0;
    for (size_t i = 0; i < count; i++) word[i] = data[2 + i] == '/' ? '_' : (char)data[2 + i];
    word[count] = 0;
    return size > 1 ? 2 + count : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char room[MOST_WORDS][MOST_LETTERS + 1];
    char *words[MOST_WORDS + 2] = {(char[]){"mprun"}};
    int count = 1;
    for (size_t at = 0; at < size && count <= MOST_WORDS; count++) {
        at += next_word(data + at, size - at, room[count - 1]);
        words[count] = room[count - 1];
    }
    FILE *out = stdout, *err = stderr;
    char *printed = 0, *said = 0;
    size_t printed_bytes, said_bytes;
    stdout = open_memstream(&printed, &printed_bytes);
    stderr = open_memstream(&said, &said_bytes);
    if (!stdout || !stderr) abort();
    optind = 0; /* getopt begins anew */
    const int code = mprun_main(count, words);
    fclose(stdout);
    fclose(stderr);
    stdout = out;
    stderr = err;
    const char *end = strchr(said, '\n');
    const int one_line = !strncmp(said, "mprun: ", 7) && end && !end[1];
    int wrong = code < 0 || code > 2 || (code ? !one_line : *said != 0);
    for (const char *c = said; *c; c++) wrong |= c != end && mpr_control(c);
    if (wrong) {
        fprintf(stderr, "exit code %d, said '%s'\n", code, said);
        for (int i = 0; i < count; i++) fprintf(stderr, "word %d: '%s'\n", i, words[i]);
        abort();
    }
    free(printed);
    free(said);
    return 0;
}

/* The files that words name lie in the current folder (bundle_seeds.py); only the pipe is made here. */
__attribute__((constructor)) static void prepare(void)
{
    if (access("net.mpnet", R_OK) != 0)
        fputs("command: run it in a folder that `bundle_seeds.py --workspace` made\n", stderr), exit(2);
    (void)!mkfifo("pipe", 0600);
}
