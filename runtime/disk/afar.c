#include "disk/afar.h"

#include "base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MOST = 1 << 30, READ_STEP = 64 * 1024, PATH_MOST = 64 * 1024, DEPTH_MOST = 64 };

struct afar {
    enum afar_what what;
    char *path;
    void (*answered)(void *arg);
    void *arg;
    struct afar_answer answer; /* the thread's, until it is over */
    pthread_mutex_t lock;      /* guards the rest */
    bool over;
    bool given_up; /* nobody waits: the thread frees it */
};

static double seconds_of(struct timespec t)
{
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int no_memory(struct nc_err *err, const char *path)
{
    return nc_err_set(err, "ENOMEM", "%s: out of memory", path);
}

/* ---- a file ---- */

static int read_all(int fd, struct buf *out)
{
    char step[READ_STEP];
    ssize_t n;
    while ((n = read(fd, step, sizeof step)) != 0) {
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0 && buf_add(out, step, (size_t)n)) {
            errno = EFBIG;
            return -1;
        }
    }
    return 0;
}

static int read_file(const char *path, struct afar_answer *out)
{
    struct buf text;
    struct stat st = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return nc_err_sys(&out->err, errno, "read %s", path);
    buf_init(&text, READ_MOST);
    int rc =
        read_all(fd, &text) || fstat(fd, &st) ? nc_err_sys(&out->err, errno, "read %s", path) : 0;
    close(fd);
    if (rc == 0) {
        out->there = true;
        out->time = seconds_of(st.st_mtim);
        out->len = text.len;
        out->text = text.len ? buf_take(&text) : NULL;
    }
    buf_free(&text);
    return rc;
}

/* ---- a folder ---- */

static int add_file(struct afar_answer *out, const char *path, const struct stat *st)
{
    if (out->count == out->room) {
        size_t room = out->room ? out->room * 2 : 64;
        struct afar_file *files = realloc(out->files, room * sizeof *files);
        if (!files)
            return no_memory(&out->err, path);
        out->files = files;
        out->room = room;
    }
    struct afar_file *f = &out->files[out->count];
    *f = (struct afar_file){strdup(path), (uint64_t)st->st_size, seconds_of(st->st_mtim)};
    if (!f->path)
        return no_memory(&out->err, path);
    out->count++;
    return 0;
}

static int list_folder(DIR *dir, struct buf *path, unsigned depth, struct afar_answer *out);

/* The entry `name` of the folder, which lies at path below the one that was asked for. What has
 * gone meanwhile, and a link that leads nowhere, is passed over. */
static int list_entry(int dir, const char *name, struct buf *path, unsigned depth,
                      struct afar_answer *out)
{
    struct stat st;
    size_t len = path->len;
    if (fstatat(dir, name, &st, 0))
        return errno == ENOENT || errno == ELOOP
                   ? 0
                   : nc_err_sys(&out->err, errno, "look at %s%s", buf_str(path), name);
    if (buf_puts(path, name))
        return no_memory(&out->err, name);
    int rc = 0;
    if (S_ISREG(st.st_mode)) {
        rc = add_file(out, buf_str(path), &st);
    } else if (S_ISDIR(st.st_mode)) {
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *below = fd < 0 || buf_putc(path, '/') ? NULL : fdopendir(fd);
        if (below)
            rc = list_folder(below, path, depth + 1, out);
        else
            rc = nc_err_sys(&out->err, errno, "list %s", buf_str(path));
        if (!below && fd >= 0)
            close(fd);
    }
    path->len = len;
    path->data[len] = '\0';
    return rc;
}

/* Closes it. */
static int list_folder(DIR *dir, struct buf *path, unsigned depth, struct afar_answer *out)
{
    int rc = depth > DEPTH_MOST ? nc_err_sys(&out->err, ELOOP, "list %s", buf_str(path)) : 0;
    errno = 0;
    for (struct dirent *d; rc == 0 && (d = readdir(dir)); errno = 0) {
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            rc = list_entry(dirfd(dir), d->d_name, path, depth, out);
    }
    if (rc == 0 && errno)
        rc = nc_err_sys(&out->err, errno, "list %s", buf_str(path));
    closedir(dir);
    return rc;
}

static int list_all(const char *folder, struct afar_answer *out)
{
    struct buf path;
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return nc_err_sys(&out->err, errno, "list %s", folder);
    out->there = true;
    buf_init(&path, PATH_MOST);
    int rc = list_folder(dir, &path, 0, out);
    buf_free(&path);
    return rc;
}

/* ---- the clock ---- */

int afar_clock(const char *folder, double *seconds, struct nc_err *err)
{
    struct buf path;
    struct stat st;
    buf_init(&path, PATH_MOST);
    buf_printf(&path, "%s/.clock.XXXXXX", folder);
    int fd = path.failed ? -1 : mkostemp(path.data, O_CLOEXEC);
    int rc = fd < 0 || write(fd, "x", 1) != 1 || fstat(fd, &st) ? -1 : 0;
    if (rc)
        nc_err_sys(err, errno, "write a file into %s", folder);
    else
        *seconds = seconds_of(st.st_mtim);
    if (fd >= 0) {
        close(fd);
        unlink(path.data);
    }
    buf_free(&path);
    return rc;
}

/* ---- the thread ---- */

static void destroy(struct afar *a)
{
    for (size_t i = 0; i < a->answer.count; i++)
        free(a->answer.files[i].path);
    free(a->answer.files);
    free(a->answer.text);
    free(a->path);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static void *look(void *arg)
{
    struct afar *a = arg;
    struct afar_answer *out = &a->answer;
    int rc = a->what == AFAR_READ   ? read_file(a->path, out)
             : a->what == AFAR_LIST ? list_all(a->path, out)
                                    : afar_clock(a->path, &out->time, &out->err);
    out->failed = rc != 0;
    pthread_mutex_lock(&a->lock);
    a->over = true;
    bool given_up = a->given_up;
    if (!given_up)
        a->answered(a->arg); /* with the lock, so that it is not given up meanwhile */
    pthread_mutex_unlock(&a->lock);
    if (given_up)
        destroy(a);
    return NULL;
}

int afar_ask(struct afar **out, enum afar_what what, const char *path, void (*answered)(void *arg),
             void *arg, struct nc_err *err)
{
    pthread_t thread;
    struct afar *a = calloc(1, sizeof *a);
    char *copy = strdup(path);
    if (!a || !copy) {
        free(a);
        free(copy);
        return no_memory(err, path);
    }
    a->what = what;
    a->path = copy;
    a->answered = answered;
    a->arg = arg;
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    int failed = pthread_create(&thread, NULL, look, a);
    if (failed) {
        *out = NULL;
        destroy(a);
        return nc_err_sys(err, failed, "start a thread to look at %s", path);
    }
    pthread_detach(thread);
    return 0;
}

const struct afar_answer *afar_answer(const struct afar *a)
{
    return &a->answer;
}

void afar_free(struct afar *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->given_up = true;
    bool over = a->over;
    pthread_mutex_unlock(&a->lock);
    if (over)
        destroy(a);
}
