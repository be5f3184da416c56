/* Transfers between real folders: what comes, what stays of a run that was cut short, and what the
 * next one makes of it. */
#include "transfer/ends.h"

#include <dirent.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/sparse.h"
#include "unit.h"

enum { MIB = 1024 * 1024, PART = 5 * MIB, LARGE = 3 * PART + 1234567 };

static char root[] = "/tmp/transfer_dir.XXXXXX";
static char from[64], to[64];
static sem_t end;

static char *join(const char *folder, const char *name)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- files ---- */

static void fill(char *out, size_t len, unsigned seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525 + 1013904223;
        out[i] = (char)(x >> 24);
    }
}

/* Bytes of a file in the source's folder, `len` at offset. */
static void put(const char *name, uint64_t offset, size_t len)
{
    int fd = open(join(from, name), O_RDWR | O_CREAT, 0600);
    char *bytes = malloc(len + 1);
    fill(bytes, len, (unsigned)name[0] + (unsigned)offset);
    if (fd < 0 || pwrite(fd, bytes, len, (off_t)offset) != (ssize_t)len || fsync(fd))
        exit(1);
    close(fd);
    free(bytes);
}

/* The page cache loses what it has of it. */
static void forget(const char *name)
{
    int fd = open(join(from, name), O_RDONLY);
    if (fd < 0 || fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        exit(1);
    close(fd);
}

static bool same_bytes(const char *a, const char *b)
{
    static char x[MIB], y[MIB];
    int fa = open(a, O_RDONLY), fb = open(b, O_RDONLY);
    ssize_t n = 1;
    bool same = fa >= 0 && fb >= 0;
    while (same && n > 0) {
        n = read(fa, x, sizeof x);
        same = n == read(fb, y, sizeof y) && n >= 0 && memcmp(x, y, (size_t)n) == 0;
    }
    close(fa);
    close(fb);
    return same;
}

static bool came(const char *name)
{
    return same_bytes(join(from, name), join(to, name));
}

static uint64_t blocks_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (uint64_t)st.st_blocks;
}

/* How many entries of the sink's folder end like this; the last one's path. */
static unsigned entries(const char *suffix, char *path, size_t size)
{
    unsigned count = 0;
    DIR *dir = opendir(to);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        size_t len = strlen(e->d_name), tail = strlen(suffix);
        if (len < tail || strcmp(e->d_name + len - tail, suffix) != 0)
            continue;
        count++;
        if (path)
            snprintf(path, size, "%s/%s", to, e->d_name);
    }
    if (dir)
        closedir(dir);
    return count;
}

static void start_anew(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s %s && mkdir %s %s", from, to, from, to);
    if (system(command))
        exit(1);
}

/* ---- a source that gives out ---- */

struct failing {
    struct source base;
    struct source *real;
    uint32_t after; /* once so many parts are stored, nothing more comes */
};

static enum op fetch_some(struct source *self, struct part *p, struct nc_err *err)
{
    struct failing *s = (struct failing *)self;
    struct transfer_stats stats;
    if (p->index < s->after)
        return s->real->fetch(s->real, p, err);
    do { /* the others are on their way, on other hands */
        usleep(1000);
        transfer_stats(p->file->transfer, &stats);
    } while (stats.bytes_done < (uint64_t)s->after * PART);
    nc_err_set(err, "AccessDenied", "%s: made to fail", p->file->path);
    return OP_FAILED;
}

static void on_part(struct source *self, struct part *p)
{
    (void)self;
    (void)p;
}

static void forget_file(struct source *self, struct file *f)
{
    struct failing *s = (struct failing *)self;
    s->real->forget(s->real, f);
}

static void free_failing(struct source *self)
{
    struct failing *s = (struct failing *)self;
    s->real->free(s->real);
    free(s);
}

static struct source *failing_after(uint32_t parts)
{
    struct failing *s = malloc(sizeof *s);
    *s = (struct failing){
        .base = {true, fetch_some, on_part, on_part, forget_file, free_failing},
        .real = source_dir_new(from),
        .after = parts,
    };
    return &s->base;
}

/* ---- runs ---- */

static void ended(void *arg)
{
    (void)arg;
    sem_post(&end);
}

struct run {
    struct source *source; /* NULL: the folder */
    uint64_t memory;       /* 0: enough */
    bool in_kernel;        /* the sink knows the folder */
    bool sha256;
    const char *version;
    const char *expected; /* of every part */
};

struct result {
    unsigned done, failed;
    uint64_t moved;
    char code[64], sha256[SHA256_HEX_SIZE];
    bool cut_short;
};

static struct result run(const struct run *r, const char *const *names, const uint64_t *sizes)
{
    struct transfer *t;
    struct nc_err err;
    struct result result = {0};
    struct transfer_options options = {
        .source = r->source ? r->source : source_dir_new(from),
        .sink = sink_dir_new(to, r->in_kernel ? from : NULL),
        .memory = r->memory ? r->memory : 64 * MIB,
        .parallel = 6,
        .part_size = PART,
        .sha256 = r->sha256,
        .ended = ended,
    };
    if (transfer_new(&t, &options, &err))
        exit(1);
    for (size_t i = 0; names[i]; i++) {
        struct transfer_file wanted = {.path = names[i], .size = sizes[i], .version = r->version};
        struct file *f = transfer_add(t, &wanted, &err);
        for (uint32_t p = 0; r->expected && p < f->parts; p++)
            transfer_expect(f, p, r->expected, &err);
    }
    transfer_start(t);
    sem_wait(&end);
    for (struct file *f; (f = transfer_next_ended(t));) {
        result.done += f->state == FILE_DONE;
        result.failed += f->state == FILE_FAILED;
        result.moved += f->moved;
        memcpy(result.sha256, f->sha256, sizeof f->sha256);
        if (f->err)
            snprintf(result.code, sizeof result.code, "%s", f->err->code);
    }
    result.cut_short = transfer_failed(t, &err);
    if (result.cut_short)
        snprintf(result.code, sizeof result.code, "%s", err.code);
    transfer_free(t);
    return result;
}

static struct result run_large(const struct run *r)
{
    static const char *const names[] = {"large", NULL};
    static const uint64_t sizes[] = {LARGE};
    return run(r, names, sizes);
}

static void test_all_kinds(const struct run *how, bool cold)
{
    static const char *const names[] = {"empty", "small", "block", "one",
                                        "many",  "holes", "hole",  NULL};
    static const uint64_t sizes[] = {0, 1000, 128 * 1024, 3 * MIB, LARGE, 30 * MIB, 12 * MIB};
    start_anew();
    for (size_t i = 0; i < 5; i++)
        put(names[i], 0, (size_t)sizes[i]);
    put("holes", 7 * MIB + 12345, 3 * MIB);
    put("holes", 20 * MIB + 1, 100);
    put("hole", 0, 1);
    if (truncate(join(from, "holes"), 30 * MIB) || truncate(join(from, "hole"), 12 * MIB))
        exit(1);
    for (size_t i = 0; cold && names[i]; i++)
        forget(names[i]);
    struct result r = run(how, names, sizes);
    bool all = r.done == 7 && !r.failed && !r.cut_short;
    for (size_t i = 0; names[i]; i++)
        all = all && came(names[i]);
    CHECK(all, "files of all kinds come as they are");
    CHECK(entries(".part", NULL, 0) == 0 && entries("", NULL, 0) == 7 + 2, "and nothing else");
    if (how->in_kernel) /* the source's blocks are not known beforehand to anybody else */
        CHECK(blocks_of(join(to, "holes")) <= blocks_of(join(from, "holes")) * 2 + 64,
              "holes stay holes");
}

static void test_digests(void)
{
    char *bytes = malloc(LARGE), want[SHA256_HEX_SIZE];
    start_anew();
    put("large", 0, LARGE);
    fill(bytes, LARGE, 'l');
    sha256_hex(bytes, LARGE, want);
    struct result r = run_large(&(struct run){.sha256 = true});
    CHECK_STR(r.sha256, want, "a file whose parts come in any order has its SHA-256");
    free(bytes);
    start_anew();
    put("large", 0, LARGE);
    r = run_large(&(struct run){.expected = "0123456789abcdef0123456789abcdef"});
    CHECK(r.failed == 1 && strcmp(r.code, "DigestMismatch") == 0 && entries("", NULL, 0) == 2,
          "parts that are not the expected ones leave nothing behind");
}

static unsigned heads(const char *journal)
{
    char text[8192];
    FILE *in = fopen(journal, "r");
    unsigned count = 0;
    size_t n = in ? fread(text, 1, sizeof text - 1, in) : 0;
    text[n] = '\0';
    if (in)
        fclose(in);
    for (const char *p = text; (p = strstr(p, "ncrun parts")); p++)
        count++;
    return count;
}

/* Leaves the first `parts` parts. */
static void cut_short(uint32_t parts, const char *version)
{
    start_anew();
    put("large", 0, LARGE);
    struct result r = run_large(&(struct run){.source = failing_after(parts), .version = version});
    CHECK(r.cut_short && strcmp(r.code, "AccessDenied") == 0, "a run is cut short");
}

static void test_goes_on(void)
{
    char journal[512], part[512];
    cut_short(2, "v1");
    CHECK(entries(".part", part, sizeof part) == 1 &&
              entries(".parts", journal, sizeof journal) == 1,
          "a file that is half-way stays, and its journal");
    CHECK(heads(journal) == 1, "which several hands have begun once");
    struct result r = run_large(&(struct run){.source = failing_after(0), .version = "v1"});
    CHECK(r.cut_short && entries(".part", NULL, 0) == 1 && entries(".parts", NULL, 0) == 1,
          "a run that adds nothing to it leaves it, too");
    r = run_large(&(struct run){.version = "v1", .sha256 = true});
    CHECK(r.done == 1 && r.moved == LARGE - 2 * PART, "the next brings only the rest");
    CHECK(came("large") && entries("", NULL, 0) == 3,
          "and the file is whole, with nothing beside it");
}

static void test_does_not_go_on(void)
{
    cut_short(2, "v1");
    struct result r = run_large(&(struct run){.version = "v2"});
    CHECK(r.done == 1 && r.moved == LARGE && came("large") && entries("", NULL, 0) == 3,
          "what is half of another version is not gone on with");
    cut_short(2, NULL);
    CHECK(entries("", NULL, 0) == 2, "what nobody could go on with does not stay");

    char part[512];
    cut_short(2, "v1");
    entries(".part", part, sizeof part);
    int fd = open(part, O_WRONLY);
    CHECK(pwrite(fd, "wrong", 5, PART + 100) == 5, "a byte is lost on the disk");
    close(fd);
    r = run_large(&(struct run){.version = "v1"});
    CHECK(r.done == 1 && r.moved == LARGE - PART && came("large"),
          "a part whose bytes are not what was written comes again");

    cut_short(2, "v1");
    entries(".part", part, sizeof part);
    CHECK(truncate(part, 3 * PART) == 0, "its end is lost");
    r = run_large(&(struct run){.version = "v1"});
    CHECK(r.done == 1 && r.moved == LARGE && came("large"),
          "a file without its length begins anew");
}

static void test_shorter(bool in_kernel, bool sparse)
{
    start_anew();
    put("large", 0, sparse ? 1 : 2 * PART);
    if (truncate(join(from, "large"), 2 * PART))
        exit(1);
    struct result r = run_large(&(struct run){.in_kernel = in_kernel, .version = "v"});
    CHECK(r.failed == 1 && strcmp(r.code, "ShortBody") == 0,
          "a file that is shorter than listed fails");
    CHECK(entries("", NULL, 0) == 2, "and leaves nothing");
}

static void test_small_leftover(void)
{
    static const char *const names[] = {"small", NULL};
    static const uint64_t sizes[] = {1000};
    start_anew();
    put("small", 0, 1000);
    close(open(join(to, "small.0123abcd.part"), O_CREAT | O_WRONLY, 0600));
    struct result r = run(&(struct run){.version = "v"}, names, sizes);
    CHECK(r.done == 1 && came("small") && entries("", NULL, 0) == 3,
          "what was left of a small file is removed");
}

/* More small files than the process may have open. */
static void test_few_descriptors(void)
{
    enum { FILES = 300 };
    static char paths[FILES][16];
    static const char *names[FILES + 1];
    static uint64_t sizes[FILES];
    struct rlimit before, few;
    getrlimit(RLIMIT_NOFILE, &before);
    few = (struct rlimit){.rlim_cur = 96, .rlim_max = before.rlim_max};
    start_anew();
    for (size_t i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "f%zu", i);
        names[i] = paths[i];
        sizes[i] = i % 5 ? 10 : 1 * MIB + 1 + i; /* some streamed */
        put(paths[i], 0, (size_t)sizes[i]);
    }
    setrlimit(RLIMIT_NOFILE, &few);
    struct result r = run(&(struct run){.sha256 = true}, names, sizes);
    struct result copied = run(&(struct run){.in_kernel = true}, names, sizes);
    struct result read = run(&(struct run){.in_kernel = true, .sha256 = true}, names, sizes);
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(r.done == FILES && copied.done == FILES && read.done == FILES,
          "files are begun as there are descriptors");
}

int main(void)
{
    char command[128];
    alarm(120);
    sem_init(&end, 0, 0);
    if (!mkdtemp(root))
        return 1;
    snprintf(from, sizeof from, "%s/from", root);
    snprintf(to, sizeof to, "%s/to", root);
    test_all_kinds(&(struct run){.in_kernel = true}, false);
    test_all_kinds(&(struct run){.in_kernel = true, .sha256 = true}, false);
    test_all_kinds(&(struct run){0}, false);
    test_all_kinds(&(struct run){0}, true);
    test_all_kinds(&(struct run){.in_kernel = true, .sha256 = true}, true);
    test_all_kinds(&(struct run){.memory = 1 * MIB}, true); /* a direct write's block is 2 MiB */
    test_digests();
    test_goes_on();
    test_does_not_go_on();
    test_shorter(false, false);
    test_shorter(true, false);
    test_shorter(false, true);
    test_shorter(true, true);
    test_small_leftover();
    test_few_descriptors();
    snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK(system(command) == 0, "cleaned up");
    return unit_done();
}
