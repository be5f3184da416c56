#include "disk/temp_file.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_LEN_MAX = 64 * 1024, JOURNAL_MAX = 1024 * 1024 };

int temp_file_sync_folder(const char *path, struct nc_err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    if (!folder)
        return nc_err_set(err, "ENOMEM", "sync the folder of %s: out of memory", path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || (fsync(fd) && errno != EINVAL) ? -1 : 0; /* some have nothing to sync */
    if (rc)
        nc_err_sys(err, errno, "sync %s", folder);
    if (fd >= 0)
        close(fd);
    free(folder);
    return rc;
}

/* Makes every folder above the last '/' of path, from the first that is missing. */
static int make_folders(char *path, struct nc_err *err)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        int rc = mkdir(path, 0777);
        int saved = errno;
        int synced = rc ? 0 : temp_file_sync_folder(path, err);
        *p = '/';
        if (rc && saved != EEXIST)
            return nc_err_sys(err, saved, "make the folders of %s", path);
        if (synced)
            return -1;
    }
    return 0;
}

static uint32_t first_number;
static atomic_uint numbers;
static pthread_once_t drawn = PTHREAD_ONCE_INIT;

static void draw_number(void)
{
    if (getrandom(&first_number, sizeof first_number, 0) != sizeof first_number)
        first_number = (uint32_t)getpid();
}

/* Random for the process, and then by turns: no two of its own are the same. */
static char *path_of_temp(const char *final)
{
    struct buf path;
    pthread_once(&drawn, draw_number);
    uint32_t random = first_number + atomic_fetch_add(&numbers, 1);
    buf_init(&path, PATH_LEN_MAX);
    buf_printf(&path, "%s.%08x.part", final, random);
    char *taken = buf_take(&path);
    buf_free(&path);
    return taken;
}

int temp_file_create(struct temp_file *t, const char *final, struct nc_err *err)
{
    *t = (struct temp_file){.fd = -1, .journal = -1};
    t->final = strdup(final);
    t->path = path_of_temp(final);
    if (!t->final || !t->path)
        return nc_err_set(err, "ENOMEM", "create %s: out of memory", final);
    static const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    t->fd = open(t->path, flags, 0666);
    if (t->fd < 0 && errno == ENOENT) {
        if (make_folders(t->path, err))
            return -1;
        t->fd = open(t->path, flags, 0666);
    }
    if (t->fd < 0)
        return nc_err_sys(err, errno, "create %s", t->path);
    flock(t->fd, LOCK_EX | LOCK_NB); /* where there are no locks, nothing rests on them */
    return 0;
}

int temp_file_adopt(struct temp_file *t, const char *final, char *path)
{
    *t = (struct temp_file){.fd = -1, .journal = -1};
    t->final = strdup(final);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (t->final && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        t->journaled = true;
        t->fd = fd;
        t->path = path;
        return 0;
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return -1;
}

/* NAME.<hex>.parts of a NAME.<hex>.part */
static char *path_of_journal(const struct temp_file *t)
{
    size_t len = strlen(t->path);
    char *path = malloc(len + 2);
    if (path) {
        memcpy(path, t->path, len);
        memcpy(path + len, "s", 2);
    }
    return path;
}

static int open_journal(const struct temp_file *t, int flags)
{
    char *path = path_of_journal(t);
    int fd = path ? open(path, flags | O_CLOEXEC, 0666) : -1;
    free(path);
    return fd;
}

char *temp_file_journal(const struct temp_file *t, size_t *len)
{
    int fd = open_journal(t, O_RDONLY);
    char *text = fd >= 0 ? malloc(JOURNAL_MAX) : NULL;
    ssize_t n = 1;
    *len = 0;
    while (text && n > 0 && *len < JOURNAL_MAX) {
        n = read(fd, text + *len, JOURNAL_MAX - *len);
        if (n > 0)
            *len += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    return text;
}

static int append(const struct temp_file *t, const char *text, size_t len, struct nc_err *err)
{
    ssize_t n = write(t->journal, text, len); /* a line at once: it is there or not */
    if (n != (ssize_t)len)
        return nc_err_sys(err, n < 0 ? errno : ENOSPC, "write %ss", t->path);
    return 0;
}

int temp_file_note(struct temp_file *t, const char *head, const char *line, size_t len,
                   struct nc_err *err)
{
    if (t->journal < 0) {
        struct stat st;
        t->journaled = true;
        t->journal = open_journal(t, O_WRONLY | O_CREAT | O_APPEND);
        if (t->journal < 0 || fstat(t->journal, &st))
            return nc_err_sys(err, errno, "create %ss", t->path);
        if (st.st_size == 0 && append(t, head, strlen(head), err))
            return -1;
    }
    return append(t, line, len, err);
}

int temp_file_sync(const struct temp_file *t, struct nc_err *err)
{
    if (fsync(t->fd))
        return nc_err_sys(err, errno, "sync %s", t->path);
    /* Some file systems tell of a failed write only when a descriptor is closed; ours stays open,
     * since its lock is needed until the file has its name. */
    int copy = dup(t->fd);
    if (copy < 0 || close(copy))
        return nc_err_sys(err, errno, "close %s", t->path);
    return 0;
}

/* Before its file goes or gets its name: nobody would look for a journal alone. */
static void remove_journal(const struct temp_file *t)
{
    char *path = t->journaled ? path_of_journal(t) : NULL;
    if (path)
        unlink(path);
    free(path);
}

int temp_file_publish(struct temp_file *t, struct nc_err *err)
{
    remove_journal(t); /* first: nobody would look for it beside a file that has its name */
    if (rename(t->path, t->final))
        return nc_err_sys(err, errno, "rename %s", t->path);
    free(t->path);
    t->path = NULL;
    return 0;
}

void temp_file_close(struct temp_file *t, bool keep)
{
    if (t->path && t->fd >= 0 && !keep) {
        remove_journal(t);
        unlink(t->path);
    }
    if (t->journal >= 0)
        close(t->journal);
    if (t->fd >= 0)
        close(t->fd);
    free(t->path);
    free(t->final);
    *t = (struct temp_file){.fd = -1, .journal = -1};
}
