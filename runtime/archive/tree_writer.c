#include "archive/tree_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct tree_writer {
    int root;
    /* The folder of the last entry: most entries are in that of the one before. */
    int at;
    char *at_path;
};

int tree_writer_new(struct tree_writer **out, const char *folder, struct nc_err *err)
{
    struct tree_writer *w = calloc(1, sizeof *w);
    if (!w)
        return nc_err_sys(err, ENOMEM, "unpack into %s", folder);
    w->at = -1;
    w->root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->root < 0) {
        nc_err_sys(err, errno, "unpack into %s", folder);
        free(w);
        return -1;
    }
    *out = w;
    return 0;
}

static void leave_folder(struct tree_writer *w)
{
    if (w->at >= 0)
        close(w->at);
    w->at = -1;
    free(w->at_path);
    w->at_path = NULL;
}

void tree_writer_free(struct tree_writer *w)
{
    if (!w)
        return;
    leave_folder(w);
    close(w->root);
    free(w);
}

uint64_t tree_writer_room(const struct tree_writer *w)
{
    struct statvfs st;
    if (fstatvfs(w->root, &st) || !st.f_blocks)
        return UINT64_MAX;
    return (uint64_t)st.f_bavail * st.f_frsize;
}

/* ---- names ---- */

static bool is_dots(const char *part, size_t len)
{
    return len == 2 && part[0] == '.' && part[1] == '.';
}

const char *tree_writer_why_not(const char *path)
{
    if (path[0] == '/')
        return "is absolute";
    for (const char *c = path; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return "holds a control character";
    }
    if (strlen(path) >= PATH_MAX)
        return "is longer than a path may be";
    for (const char *part = path; *part;) {
        size_t len = strcspn(part, "/");
        if (is_dots(part, len))
            return "would leave the folder";
        part += len + (part[len] == '/');
    }
    return NULL;
}

static int refuse(struct nc_err *err, const char *path, const char *why)
{
    nc_err_set(err, "BadPath", "the entry \"%.300s\" %s", path, why);
    return -1;
}

/* Whether a link in a folder `depth` below the root stays in the tree. */
static bool leads_inside(const char *target, unsigned depth)
{
    bool down = false; /* a part that is no `..` has come: behind it a `..` may climb from a link */
    if (target[0] == '/' || !target[0])
        return false;
    for (const char *part = target; *part;) {
        size_t len = strcspn(part, "/");
        if (is_dots(part, len)) {
            if (down || depth-- == 0)
                return false;
        } else if (len > 0 && !(len == 1 && part[0] == '.')) {
            down = true;
        }
        part += len + (part[len] == '/');
    }
    return true;
}

/* ---- the walk ---- */

/* The next part of *path that means something, which ends there; NULL at the end. */
static char *next_part(char **path)
{
    for (;;) {
        *path += strspn(*path, "/");
        if (!**path)
            return NULL;
        char *part = *path;
        *path += strcspn(*path, "/");
        if (**path)
            *(*path)++ = '\0';
        if (strcmp(part, ".") != 0)
            return part;
    }
}

/* `fd` of a folder that is made where it is not there; closes the one above, but for the root. */
static int step_into(const struct tree_writer *w, int above, const char *part)
{
    int fd = -1;
    if (mkdirat(above, part, 0777) == 0 || errno == EEXIST)
        fd = openat(above, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int saved = errno;
    if (above != w->root)
        close(above);
    errno = saved;
    return fd;
}

/* Opens the folder `path` below the root, which is then w->at. `whole`: the entry's name. */
static int enter(struct tree_writer *w, const char *path, const char *whole, struct nc_err *err)
{
    if (w->at_path && strcmp(w->at_path, path) == 0)
        return 0;
    leave_folder(w);
    char *copy = strdup(path), *rest = copy, *part;
    int fd = copy ? w->root : -1;
    while (fd >= 0 && (part = next_part(&rest)))
        fd = step_into(w, fd, part);
    int saved = errno;
    free(copy);
    if (fd == w->root)
        fd = fcntl(w->root, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 && (saved == ELOOP || saved == ENOTDIR))
        return refuse(err, whole, "lies behind a link or a file, not in a folder");
    if (fd < 0) {
        nc_err_sys(err, saved, "make the folder of %s", whole);
        return -1;
    }
    w->at = fd;
    w->at_path = strdup(path);
    return 0;
}

/* Enters the folder of `path` and gives the name in it, in *leaf, to be freed. */
static int enter_folder_of(struct tree_writer *w, const char *path, char **leaf, struct nc_err *err)
{
    const char *why = tree_writer_why_not(path);
    if (why)
        return refuse(err, path, why);
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (begin == end || (end - begin == 1 && path[begin] == '.'))
        return refuse(err, path, "names no file");
    char *folder = strndup(path, begin);
    *leaf = strndup(path + begin, end - begin);
    int rc =
        folder && *leaf ? enter(w, folder, path, err) : nc_err_sys(err, ENOMEM, "unpack %s", path);
    free(folder);
    if (rc) {
        free(*leaf);
        *leaf = NULL;
    }
    return rc;
}

static unsigned depth_of(const char *path)
{
    char *copy = strdup(path), *rest = copy;
    unsigned parts = 0;
    while (copy && next_part(&rest))
        parts++;
    free(copy);
    return parts ? parts - 1 : 0;
}

/* ---- entries ---- */

int tree_writer_folder(struct tree_writer *w, const char *path, mode_t mode, struct nc_err *err)
{
    const char *why = tree_writer_why_not(path);
    if (why)
        return refuse(err, path, why);
    if (path[strspn(path, "./")] == '\0')
        return 0; /* the root itself */
    char *leaf = NULL;
    if (enter_folder_of(w, path, &leaf, err))
        return -1;
    struct stat st;
    int rc = mkdirat(w->at, leaf, (mode & 0777) | 0700);
    if (rc && errno == EEXIST && fstatat(w->at, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0)
        rc = S_ISDIR(st.st_mode) ? 0 : refuse(err, path, "is a folder where a file is");
    else if (rc)
        nc_err_sys(err, errno, "make the folder %s", path);
    free(leaf);
    return rc;
}

/* What is there under the name goes, unless it is a folder, which the next call then reports. */
static void make_way(const struct tree_writer *w, const char *leaf)
{
    unlinkat(w->at, leaf, 0);
}

int tree_writer_file(struct tree_writer *w, const char *path, mode_t mode, struct nc_err *err)
{
    char *leaf = NULL;
    if (enter_folder_of(w, path, &leaf, err))
        return -1;
    make_way(w, leaf);
    int fd = openat(w->at, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0777);
    if (fd < 0)
        nc_err_sys(err, errno, "create %s", path);
    free(leaf);
    return fd;
}

int tree_writer_symlink(struct tree_writer *w, const char *path, const char *target,
                        struct nc_err *err)
{
    char *leaf = NULL;
    if (!leads_inside(target, depth_of(path)))
        return refuse(err, path, "is a link that leads out of the folder");
    if (enter_folder_of(w, path, &leaf, err))
        return -1;
    make_way(w, leaf);
    int rc = symlinkat(target, w->at, leaf);
    if (rc)
        nc_err_sys(err, errno, "link %s", path);
    free(leaf);
    return rc;
}

/* A link to a symbolic one would move it to another depth, where its target may lie outside. */
static int check_linked(const struct tree_writer *w, const char *leaf, const char *path,
                        struct nc_err *err)
{
    struct stat st;
    if (fstatat(w->at, leaf, &st, AT_SYMLINK_NOFOLLOW))
        return refuse(err, path, "is a link to a file that is not there");
    return S_ISREG(st.st_mode) ? 0 : refuse(err, path, "is a hard link to what is no file");
}

int tree_writer_hardlink(struct tree_writer *w, const char *path, const char *target,
                         struct nc_err *err)
{
    char *leaf = NULL, *linked = NULL;
    if (tree_writer_why_not(target))
        return refuse(err, path, "is a link that leads out of the folder");
    if (enter_folder_of(w, target, &linked, err))
        return -1;
    int folder = -1;
    int rc = check_linked(w, linked, path, err);
    if (rc == 0 && (folder = fcntl(w->at, F_DUPFD_CLOEXEC, 0)) < 0)
        rc = nc_err_sys(err, errno, "link %s", path);
    if (rc == 0)
        rc = enter_folder_of(w, path, &leaf, err);
    if (rc == 0) {
        make_way(w, leaf);
        rc = linkat(folder, linked, w->at, leaf, 0);
        if (rc)
            nc_err_sys(err, errno, "link %s", path);
    }
    if (folder >= 0)
        close(folder);
    free(leaf);
    free(linked);
    return rc;
}
