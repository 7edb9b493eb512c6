/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../mp_crc.h"
#include "../types.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bundles are little-endian and read in place; this machine is not"
#endif

int mpr_fail(char *error, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(error, MPR_ERROR, format, values);
    va_end(values);
    /* One line, whatever names a file holds. */
    char *out = error;
    for (const char *c = error; *c; out++) {
        const int control = mpr_control(c);
        *out = control ? '?' : *c;
        c += control ? control : 1;
    }
    *out = 0;
    return -1;
}

int mpr_control(const char *text)
{
    const unsigned char *c = (const void *)text;
    if (*c < 0x20 || *c == 0x7f) return *c != 0;
    return c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0 ? 2 : 0; /* U+0080 to U+009F in UTF-8 */
}

typedef struct {
    const char *name;
    size_t record;
    int64_t least, most; /* records */
} section_rule;

static const section_rule RULES[MPB_SECTIONS] = {
    [MPB_NETWORK] = {"network", sizeof(mpb_network), 1, 1},
    [MPB_PROGRAMS] = {"programs", sizeof(mpb_program), 1, 1 << 16},
    [MPB_SLOTS] = {"slots", sizeof(mpb_slot), 1, 1 << 24},
    [MPB_STEPS] = {"steps", sizeof(mpb_step), 0, 1 << 24},
    [MPB_PLACES] = {"places", sizeof(int32_t), 1, 1 << 26},
    [MPB_CONVOLUTIONS] = {"convolutions", sizeof(mpb_convolution), 0, 1 << 20},
    [MPB_HEADS] = {"heads", sizeof(mpb_head), 0, 16},
    [MPB_ANCHORS] = {"anchors", 2 * sizeof(float), 0, 1 << 16},
    [MPB_PACKED] = {"packed", sizeof(mpb_packed), 0, 1 << 22},
    [MPB_TEXT] = {"text", 1, 1, 1 << 28},
    [MPB_ORIGIN] = {"origin", 1, 1, 1 << 28},
    [MPB_DATA] = {"data", 1, 0, INT64_MAX},
};

static int check_sections(mpr_file *file, char *error)
{
    const char *name = file->name;
    const mpb_header *header = (const void *)file->base;
    if (file->bytes < sizeof *header || memcmp(header->magic, "mpbundle", sizeof header->magic) != 0)
        return mpr_fail(error, "%s: is no bundle; make one with `mpnet export RUN --to bundle`", name);
    if (header->version != MPB_VERSION)
        return mpr_fail(error, "%s: has version %u, this program reads %d; %s", name, header->version, MPB_VERSION,
                        header->version > MPB_VERSION ? "build a newer mprun" : "export it again");
    if (header->bytes != file->bytes)
        return mpr_fail(error, "%s: holds %llu bytes where its header says %llu; copy it again", name,
                        (unsigned long long)file->bytes, (unsigned long long)header->bytes);
    const uint64_t head = sizeof *header + (uint64_t)header->sections * sizeof(mpb_section);
    if (header->sections < MPB_SECTIONS || header->sections > 1024 || head > file->bytes)
        return mpr_fail(error, "%s: its header is damaged; copy it again", name);
    mpb_header header_copy = *header;
    header_copy.crc = 0;
    const mpb_section *sections = (const void *)(header + 1);
    if (mp_crc32c(mp_crc32c(0, &header_copy, sizeof header_copy), sections, head - sizeof header_copy) != header->crc)
        return mpr_fail(error, "%s: its header is damaged (CRC); copy it again", name);
    for (int s = 0; s < MPB_SECTIONS; s++) {
        const mpb_section *section = &sections[s];
        const section_rule *rule = &RULES[s];
        if (section->at % MPB_ALIGN || section->at < head || section->at > file->bytes ||
            section->bytes > file->bytes - section->at || section->record_bytes != rule->record ||
            section->bytes % rule->record)
            return mpr_fail(error, "%s: %s: lies outside of the file or is cut; copy it again", name, rule->name);
        file->count[s] = (int64_t)(section->bytes / rule->record);
        if (file->count[s] < rule->least || file->count[s] > rule->most)
            return mpr_fail(error, "%s: %s: %lld records are outside %lld to %lld; export it again", name, rule->name,
                            (long long)file->count[s], (long long)rule->least, (long long)rule->most);
        if (s != MPB_DATA && mp_crc32c(0, file->base + section->at, section->bytes) != section->crc)
            return mpr_fail(error, "%s: %s: is damaged (CRC); copy it again", name, rule->name);
    }
#define SECTION(FIELD, WHICH) file->FIELD = (const void *)(file->base + sections[WHICH].at)
    SECTION(network, MPB_NETWORK);
    SECTION(programs, MPB_PROGRAMS);
    SECTION(slots, MPB_SLOTS);
    SECTION(steps, MPB_STEPS);
    SECTION(places, MPB_PLACES);
    SECTION(convolutions, MPB_CONVOLUTIONS);
    SECTION(heads, MPB_HEADS);
    SECTION(anchors, MPB_ANCHORS);
    SECTION(packed, MPB_PACKED);
    SECTION(text, MPB_TEXT);
    SECTION(origin, MPB_ORIGIN);
    SECTION(data, MPB_DATA);
#undef SECTION
    if (file->text[file->count[MPB_TEXT] - 1] != 0)
        return mpr_fail(error, "%s: text: does not end; export it again", name);
    return 0;
}

int mpr_file_of(mpr_file *file, const char *name, const void *bytes, uint64_t count, char *error)
{
    memset(file, 0, sizeof *file);
    file->name = name;
    file->base = bytes;
    file->bytes = count;
    return check_sections(file, error);
}

int mpr_file_map(mpr_file *file, const char *path, char *error)
{
    struct stat status;
    memset(file, 0, sizeof *file);
    const int handle = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* without waiting at a named pipe */
    if (handle < 0) return mpr_fail(error, "%s: cannot be opened (%s); check the path", path, strerror(errno));
    if (fstat(handle, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < 1) {
        close(handle);
        return mpr_fail(error, "%s: is empty or not a file; make one with `mpnet export RUN --to bundle`", path);
    }
    void *base = mmap(0, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, handle, 0);
    close(handle);
    if (base == MAP_FAILED) return mpr_fail(error, "%s: cannot be mapped (%s)", path, strerror(errno));
    const int result = mpr_file_of(file, path, base, (uint64_t)status.st_size, error);
    file->mapped = 1;
    if (result) mpr_file_close(file);
    return result;
}

void mpr_file_close(mpr_file *file)
{
    if (file->mapped) munmap((void *)(uintptr_t)file->base, file->bytes);
    file->base = 0;
    file->mapped = 0;
}

const char *mpr_text(const mpr_file *file, uint32_t at) { return at < file->count[MPB_TEXT] ? file->text + at : ""; }

const char *mpr_next_text(const mpr_file *file, const char *text)
{
    const char *next = text + strlen(text) + 1;
    return *text && next < file->text + file->count[MPB_TEXT] ? next : "";
}

static const char *nth_text(const mpr_file *file, uint32_t at, int number, int count)
{
    if (number < 0 || number >= count) return "";
    const char *text = mpr_text(file, at);
    while (number-- > 0 && *text) text = mpr_next_text(file, text);
    return text;
}

const char *mpr_layer_name(const mpr_file *file, int layer)
{
    return nth_text(file, file->network->layer_names, layer, file->network->layers);
}

const char *mpr_class_name(const mpr_file *file, int category)
{
    return nth_text(file, file->network->class_names, category, file->network->classes);
}

uint64_t mpr_slot_bytes(const mpb_slot *slot) { return mpr_values(slot) * mp_type_bytes(slot->type); }

int mpr_has(const mpr_file *file, int section, int64_t first, int64_t count)
{
    return first >= 0 && count >= 0 && first <= file->count[section] && count <= file->count[section] - first;
}

const void *mpr_piece(const mpr_file *file, const mpb_piece *piece, uint64_t bytes, const char *label, char *error)
{
    const uint64_t data_bytes = (uint64_t)file->count[MPB_DATA];
    if (piece->at % MPB_ALIGN || piece->at > data_bytes || piece->bytes > data_bytes - piece->at ||
        piece->bytes != bytes) {
        mpr_fail(error, "%s: %s: %llu bytes where %llu belong, or outside of the file; export it again", file->name,
                 label, (unsigned long long)piece->bytes, (unsigned long long)bytes);
        return 0;
    }
    if (mp_crc32c(0, file->data + piece->at, piece->bytes) != piece->crc) {
        mpr_fail(error, "%s: %s: is damaged (CRC); copy it again", file->name, label);
        return 0;
    }
    return file->data + piece->at;
}

void mpr_forget(const mpr_file *file, const mpb_piece *piece)
{
    /* Whole pages within the piece; they come back from the file when somebody looks again. */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)file->data + piece->at;
    const uintptr_t first = (base + page - 1) / page * page, last = (base + piece->bytes) / page * page;
    if (file->mapped && last > first) madvise((void *)first, last - first, MADV_DONTNEED);
}
