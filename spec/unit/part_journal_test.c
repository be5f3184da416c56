/* Journals of half-written files: what is written is read, and nothing else. */
#include "disk/part_journal.h"

#include "unit.h"

static const char first[] = "0123456789abcdef0123456789abcdef";
static const char other[] = "ffffffffffffffffffffffffffffffff";
enum { PARTS = 12 };

static char has[PARTS][XXH3_HEX_SIZE];
static unsigned count;

static void note(void *arg, uint32_t index, const char *xxh3)
{
    (void)arg;
    memcpy(has[index], xxh3, XXH3_HEX_SIZE);
    count++;
}

static int parse(const char *text)
{
    memset(has, 0, sizeof has);
    count = 0;
    return part_journal_read(text, strlen(text), 1000, 90, "v 1", PARTS, note, NULL);
}

#define HEAD "ncrun parts 1\n1000 90 v 1\n"
#define DIGEST "0123456789abcdef0123456789abcdef"

static void test_written(void)
{
    struct buf text;
    char line[PART_JOURNAL_LINE_SIZE];
    buf_init(&text, 1000);
    part_journal_head(&text, 1000, 90, "v 1");
    CHECK_STR(buf_str(&text), HEAD, "a journal begins with what it is of");
    buf_add(&text, line, part_journal_line(line, 0, first));
    buf_add(&text, line, part_journal_line(line, 11, other));
    CHECK_STR(buf_str(&text), HEAD "0 " DIGEST "\n11 ffffffffffffffffffffffffffffffff\n",
              "then has a line for each part");
    CHECK(parse(buf_str(&text)) == 0 && count == 2, "both are read");
    CHECK(strcmp(has[0], first) == 0 && strcmp(has[11], other) == 0, "with their digests");
    size_t len = part_journal_line(line, UINT32_MAX, first);
    CHECK(len == sizeof line - 1 && line[len - 1] == '\n', "the longest line has its room");
    buf_free(&text);
}

static void test_of_another(void)
{
    static const char *const others[] = {
        "",
        "ncrun parts 1\n",
        "ncrun parts 2\n1000 90 v 1\n0 " DIGEST "\n",
        "ncrun parts 1\n1001 90 v 1\n0 " DIGEST "\n",
        "ncrun parts 1\n1000 91 v 1\n0 " DIGEST "\n",
        "ncrun parts 1\n1000 90 v 12\n0 " DIGEST "\n",
        "ncrun parts 1\n1000 90 v\n0 " DIGEST "\n",
        "ncrun parts 1\n1000 90 v 1",
        "\n" HEAD,
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(parse(others[i]) == -1 && count == 0, "one of another content is told apart");
    CHECK(parse(HEAD) == 0 && count == 0, "one without parts is still of this content");
}

static void test_crashed(void)
{
    CHECK(parse(HEAD "1 " DIGEST) == 0 && count == 0, "a line without its end is none");
    CHECK(parse(HEAD "1 0123\n2 " DIGEST "\n") == 0 && count == 1 && has[2][0],
          "nor is one that is too short, and the next is read");
    CHECK(parse(HEAD "1 0123452 " DIGEST "\n3 " DIGEST "\n") == 0 && count == 1 && has[3][0],
          "nor one that went on where another was cut");
    CHECK(parse(HEAD "\n\n\n1 " DIGEST "\n") == 0 && count == 1, "empty lines are passed over");
    CHECK(parse(HEAD "1 " DIGEST "\n1 ffffffffffffffffffffffffffffffff\n") == 0 &&
              strcmp(has[1], other) == 0,
          "a part that was written again counts as it was last");
}

static void test_bad_lines(void)
{
    static const char *const bad[] = {
        "12 " DIGEST "\n",
        "4294967296 " DIGEST "\n",
        "18446744073709551616 " DIGEST "\n",
        "-1 " DIGEST "\n",
        " 1 " DIGEST "\n",
        "1" DIGEST "\n",
        "1  " DIGEST "\n",
        "1 0123456789ABCDEF0123456789abcdef\n",
        "1 0123456789abcdef0123456789abcdeg\n",
        "1 " DIGEST "0\n",
        "1 " DIGEST "\r\n",
        "one " DIGEST "\n",
    };
    char text[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, HEAD "%s", bad[i]);
        CHECK(parse(text) == 0 && count == 0, "no part is read from a bad line");
    }
    static const char with_nul[] = HEAD "1 0123456789abcdef\0123456789abcdef\n";
    count = 0;
    part_journal_read(with_nul, sizeof with_nul - 1, 1000, 90, "v 1", PARTS, note, NULL);
    CHECK(count == 0, "nor from one with a NUL");
}

static void test_versions(void)
{
    char longest[1026];
    memset(longest, 'v', sizeof longest);
    longest[1025] = '\0';
    CHECK(!part_journal_takes(longest), "a version may be too long");
    longest[1024] = '\0';
    CHECK(part_journal_takes(longest), "1,024 bytes are not");
    CHECK(!part_journal_takes(""), "an empty one says nothing");
    CHECK(!part_journal_takes("a\nb") && !part_journal_takes("a\tb"),
          "control characters would break the line");
    CHECK(part_journal_takes("\"etag\" caf\xc3\xa9"), "other bytes would not");
    struct buf text;
    buf_init(&text, 4096);
    part_journal_head(&text, 1000, 90, longest);
    CHECK(part_journal_read(text.data, text.len, 1000, 90, longest, PARTS, note, NULL) == 0,
          "the longest is found again");
    buf_free(&text);
}

int main(void)
{
    test_written();
    test_of_another();
    test_crashed();
    test_bad_lines();
    test_versions();
    return unit_done();
}
