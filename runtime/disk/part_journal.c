#include "disk/part_journal.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VERSION_MAX = 1024 };

bool part_journal_takes(const char *version)
{
    size_t len = strlen(version);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)version[i] < ' ')
            return false;
    }
    return len > 0 && len <= VERSION_MAX;
}

int part_journal_head(struct buf *out, uint64_t size, uint64_t part_size, const char *version)
{
    return buf_printf(out, "ncrun parts 1\n%" PRIu64 " %" PRIu64 " %s\n", size, part_size, version);
}

size_t part_journal_line(char out[PART_JOURNAL_LINE_SIZE], uint32_t index, const char *xxh3)
{
    return (size_t)snprintf(out, PART_JOURNAL_LINE_SIZE, "%" PRIu32 " %.*s\n", index,
                            XXH3_HEX_SIZE - 1, xxh3);
}

/* "<index> <32 hex digits>", without its newline. */
static bool read_line(const char *line, size_t len, uint32_t parts, uint32_t *index,
                      char xxh3[XXH3_HEX_SIZE])
{
    char text[PART_JOURNAL_LINE_SIZE];
    const char *p = text;
    uint64_t n;
    if (len >= sizeof text)
        return false;
    memcpy(text, line, len);
    text[len] = '\0';
    if (text_take_u64(&p, &n) || n >= parts || *p++ != ' ' || strlen(p) != XXH3_HEX_SIZE - 1 ||
        strspn(p, "0123456789abcdef") != XXH3_HEX_SIZE - 1)
        return false;
    *index = (uint32_t)n;
    memcpy(xxh3, p, XXH3_HEX_SIZE);
    return true;
}

int part_journal_read(const char *text, size_t len, uint64_t size, uint64_t part_size,
                      const char *version, uint32_t parts,
                      void (*has)(void *arg, uint32_t index, const char *xxh3), void *arg)
{
    struct buf head;
    buf_init(&head, 2 * VERSION_MAX);
    bool same = part_journal_head(&head, size, part_size, version) == 0 && len >= head.len &&
                memcmp(text, head.data, head.len) == 0;
    size_t at = head.len;
    buf_free(&head);
    if (!same)
        return -1;
    for (const char *end; at < len && (end = memchr(text + at, '\n', len - at));
         at = (size_t)(end - text) + 1) {
        uint32_t index;
        char xxh3[XXH3_HEX_SIZE];
        if (read_line(text + at, (size_t)(end - text) - at, parts, &index, xxh3))
            has(arg, index, xxh3);
    }
    return 0;
}
