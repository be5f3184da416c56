/* What is counted as written and not yet on the disk. The bytes themselves are not needed for it:
 * the descriptor is that of an empty file. */
#include "disk/writeback.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit.h"

enum { MIB = 1024 * 1024, WRITERS = 8 };
static int fd;

static void wrote(struct writeback *w, struct writeback_span *s, uint64_t len)
{
    writeback_wrote(w, s, fd, 0, (size_t)len, false);
}

static uint64_t dirty(struct writeback *w)
{
    return atomic_load(&w->dirty);
}

static void test_one(void)
{
    struct writeback w = {0};
    struct writeback_span s = {0};
    wrote(&w, &s, MIB);
    CHECK(dirty(&w) == MIB && s.written == MIB && s.waited == 0, "what is written is dirty");
    writeback_end(&w, &s, fd, 0, false);
    CHECK(dirty(&w) == 0 && s.waited == MIB, "until it has been waited for");
    wrote(&w, &s, MIB);
    CHECK(dirty(&w) == MIB, "and more is dirty again");
    writeback_drop(&w, &s);
    CHECK(dirty(&w) == 0 && s.written == 0 && s.waited == 0, "what is dropped is not");
    writeback_drop(&w, &s);
    writeback_end(&w, &s, fd, 0, false);
    CHECK(dirty(&w) == 0, "an empty span is nothing, however it ends");
}

static void test_window(void)
{
    struct writeback w = {0};
    struct writeback_span a = {0}, b = {0};
    for (int i = 0; i < 48; i++)
        wrote(&w, &a, MIB);
    CHECK(dirty(&w) == 48 * MIB && a.waited == 0, "up to 48 MiB nobody waits");
    wrote(&w, &b, MIB);
    CHECK(dirty(&w) == 49 * MIB, "a writer that has not filled 2 MiB does not wait beyond it");
    wrote(&w, &b, MIB + 4096);
    CHECK(b.waited == 2 * MIB && dirty(&w) == 48 * MIB + 4096,
          "one that has waits for its own, but for what is not on its way");
    wrote(&w, &a, MIB);
    CHECK(a.waited == 48 * MIB && dirty(&w) == MIB + 4096, "and so does the other");
    writeback_drop(&w, &a);
    writeback_drop(&w, &b);
    CHECK(dirty(&w) == 0, "then nothing is left");
}

static void test_in_memory(void)
{
    struct writeback w = {.in_memory = true};
    struct writeback_span s = {0};
    wrote(&w, &s, 100 * MIB);
    CHECK(dirty(&w) == 0, "in memory nothing is counted");
    writeback_end(&w, &s, fd, 0, false);
    writeback_drop(&w, &s);
    CHECK(dirty(&w) == 0, "nor taken off");
    writeback_init(&w, "/proc");
    CHECK(!w.in_memory, "other file systems are not in memory");
    writeback_init(&w, "/nowhere/at/all");
    CHECK(!w.in_memory && dirty(&w) == 0, "a folder that is not there yet is no matter");
}

static struct writeback shared;
static _Atomic uint64_t most;

static void *write_much(void *arg)
{
    unsigned random = *(unsigned *)arg;
    for (int i = 0; i < 20; i++) {
        struct writeback_span s = {0};
        for (int n = 0; n < 60; n++) {
            random = random * 1664525 + 1013904223;
            wrote(&shared, &s, 1 + random % (512 * 1024));
            uint64_t now = dirty(&shared), before = atomic_load(&most);
            while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
                ;
        }
        if (random & 1 << 20)
            writeback_end(&shared, &s, fd, 0, random & 1 << 21);
        writeback_drop(&shared, &s);
    }
    return NULL;
}

static void test_many(void)
{
    pthread_t threads[WRITERS];
    unsigned seeds[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++) {
        seeds[i] = i;
        pthread_create(&threads[i], NULL, write_much, &seeds[i]);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    CHECK(dirty(&shared) == 0, "many writers leave nothing counted");
    CHECK(atomic_load(&most) <= 48 * MIB + WRITERS * (2 * MIB + 512 * 1024),
          "and each has at most 2 MiB and a block beyond what all may have");
}

int main(void)
{
    char path[] = "/tmp/writeback.XXXXXX";
    fd = mkstemp(path);
    unlink(path);
    test_one();
    test_window();
    test_in_memory();
    test_many();
    close(fd);
    return unit_done();
}
