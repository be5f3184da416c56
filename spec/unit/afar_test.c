/* Looks at folders from another thread: what they answer, and that nobody has to wait for them. */
#include "disk/afar.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"

static char root[] = "/tmp/afar.XXXXXX";
static sem_t came;

static const char *below(const char *name)
{
    static char paths[2][512];
    static unsigned turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *out = fopen(below(name), "w");
    if (!out || fputs(text, out) < 0 || fclose(out))
        exit(1);
}

static void answered(void *arg)
{
    sem_post(arg);
}

static struct afar *ask(enum afar_what what, const char *name)
{
    struct afar *a;
    struct nc_err err;
    if (afar_ask(&a, what, below(name), answered, &came, &err))
        exit(1);
    sem_wait(&came);
    return a;
}

static bool is_now(double seconds)
{
    double now = (double)time(NULL);
    return seconds > now - 60 && seconds < now + 60;
}

static void test_read(void)
{
    struct afar *a = ask(AFAR_READ, "a.txt");
    const struct afar_answer *r = afar_answer(a);
    CHECK(!r->failed && r->there && r->len == 5 && memcmp(r->text, "hello", 5) == 0,
          "a file's bytes");
    CHECK(is_now(r->time), "and when it was written");
    afar_free(a);
    a = ask(AFAR_READ, "empty");
    r = afar_answer(a);
    CHECK(!r->failed && r->there && r->len == 0, "an empty one is there");
    afar_free(a);
    a = ask(AFAR_READ, "no-such-file");
    CHECK(!afar_answer(a)->failed && !afar_answer(a)->there, "one that is not is not");
    afar_free(a);
    a = ask(AFAR_READ, "folder");
    r = afar_answer(a);
    CHECK(r->failed && strstr(r->err.message, "folder: Is a directory"), "what is none fails");
    CHECK_STR(r->err.code, "EISDIR", "by its code");
    afar_free(a);
}

static const struct afar_file *find(const struct afar_answer *r, const char *path)
{
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->files[i].path, path) == 0)
            return &r->files[i];
    }
    return NULL;
}

static void test_list(void)
{
    struct afar *a = ask(AFAR_LIST, "");
    const struct afar_answer *r = afar_answer(a);
    const struct afar_file *f = find(r, "folder/inner/b");
    CHECK(!r->failed && r->there && r->count == 5,
          "plain files and links to some, no matter how deep");
    CHECK(f && f->size == 3 && is_now(f->modified), "with size and time");
    CHECK(find(r, "link-to-file") && find(r, "link-to-folder/b"), "links are followed");
    CHECK(find(r, "a.txt") && find(r, "empty") && !find(r, "link-to-nothing"),
          "and ones that lead nowhere passed over");
    afar_free(a);

    if (symlink("..", below("folder/inner/round")))
        exit(1);
    a = ask(AFAR_LIST, "");
    CHECK(afar_answer(a)->failed && strcmp(afar_answer(a)->err.code, "ELOOP") == 0,
          "folders that go round fail");
    afar_free(a);
    a = ask(AFAR_LIST, "no-such-folder");
    CHECK(!afar_answer(a)->failed && !afar_answer(a)->there, "none is there");
    afar_free(a);
    a = ask(AFAR_LIST, "a.txt");
    CHECK(afar_answer(a)->failed && strcmp(afar_answer(a)->err.code, "ENOTDIR") == 0,
          "a file is no folder");
    afar_free(a);
}

static void test_clock(void)
{
    struct afar *a = ask(AFAR_CLOCK, "folder/inner");
    CHECK(!afar_answer(a)->failed && is_now(afar_answer(a)->time), "the folder's clock");
    afar_free(a);
    unlink(below("folder/inner/round"));
    a = ask(AFAR_LIST, "folder/inner");
    CHECK(afar_answer(a)->count == 1, "nothing stays of looking at it");
    afar_free(a);
    a = ask(AFAR_CLOCK, "no-such-folder");
    CHECK(afar_answer(a)->failed && strcmp(afar_answer(a)->err.code, "ENOENT") == 0,
          "a folder that is not there has none");
    afar_free(a);
}

/* A pipe that nobody writes to holds whoever opens it, as a mount without a server does. */
static void test_given_up(void)
{
    struct afar *a;
    struct nc_err err;
    if (mkfifo(below("pipe"), 0600) ||
        afar_ask(&a, AFAR_READ, below("pipe"), answered, &came, &err))
        exit(1);
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 100 * 1000 * 1000;
    soon.tv_sec += soon.tv_nsec / (1000 * 1000 * 1000);
    soon.tv_nsec %= 1000 * 1000 * 1000;
    CHECK(sem_timedwait(&came, &soon) != 0, "what does not answer does not answer");
    afar_free(a);
    int fd = open(below("pipe"), O_WRONLY | O_CLOEXEC); /* it does now */
    CHECK(write(fd, "late", 4) == 4 && close(fd) == 0, "nobody had to wait for it");
    afar_free(ask(AFAR_READ, "a.txt"));
    CHECK(sem_trywait(&came) != 0, "and it tells nobody");
    afar_free(NULL);
}

int main(void)
{
    char command[128];
    alarm(60);
    sem_init(&came, 0, 0);
    if (!mkdtemp(root) || mkdir(below("folder"), 0700) || mkdir(below("folder/inner"), 0700))
        return 1;
    put("a.txt", "hello");
    put("empty", "");
    put("folder/inner/b", "abc");
    if (symlink("a.txt", below("link-to-file")) || symlink("nothing", below("link-to-nothing")) ||
        symlink("folder/inner", below("link-to-folder")))
        return 1;
    test_read();
    test_list();
    test_clock();
    test_given_up();
    snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK(system(command) == 0, "cleaned up");
    return unit_done();
}
