/* What runs that are over have left half-written. */
#include "disk/leftovers.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char folder[] = "/tmp/leftovers.XXXXXX";

static char *below(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void touch(const char *name)
{
    close(open(below(name), O_CREAT | O_WRONLY, 0600));
}

/* Takes one of final's; whether it is the wanted one, by its name in the folder. */
static bool takes(struct leftovers *l, const char *final, const char *wanted)
{
    char *got = leftovers_take(l, below(final));
    bool same = wanted ? got && strcmp(got, below(wanted)) == 0 : !got;
    free(got);
    return same;
}

static void test_names(void)
{
    struct leftovers l;
    leftovers_init(&l);
    touch("a.0123abcd.part");
    touch("a.0123abcd.parts");
    touch("a.part");
    touch("a.0123abcD.part");
    touch("a.0123abc.part");
    touch("ax0123abcd.part");
    touch("a.b.89abcdef.part");
    touch(".0123abcd.part");
    touch("0123abcd.part");
    CHECK(takes(&l, "a", "a.0123abcd.part"), "what was to become a file is found");
    CHECK(takes(&l, "a", NULL), "once, and nothing that is only like it");
    CHECK(takes(&l, "a.b", "a.b.89abcdef.part"), "a name may have dots");
    CHECK(takes(&l, "a.b", NULL) && takes(&l, "", NULL) && takes(&l, "a.0123abcd", NULL),
          "other names have none");
    leftovers_free(&l);
}

static void test_several(void)
{
    struct leftovers l;
    leftovers_init(&l);
    touch("many.00000001.part");
    touch("many.00000002.part");
    mkdir(below("below"), 0700);
    touch("below/many.00000003.part");
    char *first = leftovers_take(&l, below("many"));
    char *second = leftovers_take(&l, below("many"));
    CHECK(first && second && strcmp(first, second) != 0, "of several, each is found");
    CHECK(takes(&l, "many", NULL), "and then no more");
    free(first);
    free(second);
    CHECK(takes(&l, "below/many", "below/many.00000003.part"), "another folder has its own");
    CHECK(takes(&l, "nowhere/many", NULL), "one that is not there has none");
    touch("late.00000004.part");
    CHECK(takes(&l, "late", NULL), "what comes after the first look is not of another run");
    leftovers_free(&l);
}

enum { THREADS = 8, EACH = 40 };
static struct leftovers shared;
static atomic_uint found;

static void *take_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < EACH; i++) {
        char name[32];
        snprintf(name, sizeof name, "/f%d/file", i);
        size_t len = strlen(folder) + strlen(name) + 1;
        char *final = malloc(len), *path;
        snprintf(final, len, "%s%s", folder, name);
        while ((path = leftovers_take(&shared, final))) {
            atomic_fetch_add(&found, 1);
            free(path);
        }
        free(final);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < EACH; i++) {
        char name[64];
        snprintf(name, sizeof name, "f%d", EACH - i - 1);
        mkdir(below(name), 0700);
        snprintf(name, sizeof name, "f%d/file.0000000%d.part", EACH - i - 1, i % 10);
        touch(name);
    }
    leftovers_init(&shared);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, take_all, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    leftovers_free(&shared);
    CHECK(atomic_load(&found) == EACH, "whoever asks, each is found once");
}

int main(void)
{
    char command[128];
    if (!mkdtemp(folder))
        return 1;
    test_names();
    test_several();
    test_threads();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0, "cleaned up");
    return unit_done();
}
