/* Journals of half-written files, which a crash may have cut anywhere: what is read from one is a
 * part of the file, and is read again from a journal made of it. */
#include <stdlib.h>
#include <string.h>

#include "disk/part_journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint64_t file_size = 12345678901, part_size = 8388608;
static const char version[] = "\"etag-1\" and more";
enum { PARTS = 1472 };

static void check(bool ok)
{
    if (!ok)
        abort();
}

struct found {
    uint32_t index;
    char xxh3[XXH3_HEX_SIZE];
    unsigned times;
};

static void same_part(void *arg, uint32_t index, const char *xxh3)
{
    struct found *f = arg;
    check(index == f->index && strcmp(xxh3, f->xxh3) == 0);
    f->times++;
}

static void a_part(void *arg, uint32_t index, const char *xxh3)
{
    struct found f = {.index = index};
    char line[PART_JOURNAL_LINE_SIZE];
    struct buf again;
    (void)arg;
    check(index < PARTS && strlen(xxh3) == XXH3_HEX_SIZE - 1);
    memcpy(f.xxh3, xxh3, XXH3_HEX_SIZE);
    buf_init(&again, 4096);
    part_journal_head(&again, file_size, part_size, version);
    buf_add(&again, line, part_journal_line(line, index, xxh3));
    check(part_journal_read(again.data, again.len, file_size, part_size, version, PARTS, same_part,
                            &f) == 0);
    check(f.times == 1);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf text;
    size = size < 65536 ? size : 65536;
    part_journal_read((const char *)data, size, file_size, part_size, version, PARTS, a_part, NULL);
    buf_init(&text, 128 * 1024); /* and as what follows a good beginning */
    part_journal_head(&text, file_size, part_size, version);
    buf_add(&text, data, size);
    check(part_journal_read(text.data, text.len, file_size, part_size, version, PARTS, a_part,
                            NULL) == 0);
    buf_free(&text);
    return 0;
}
