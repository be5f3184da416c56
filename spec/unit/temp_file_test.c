/* Files on their way to their names, and what is left where one never comes there. */
#include "disk/temp_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char folder[] = "/tmp/temp_file.XXXXXX";

static const char *below(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static bool has_journal(const char *path)
{
    char journal[1024];
    snprintf(journal, sizeof journal, "%ss", path);
    return exists(journal);
}

static const char *journal_of(const struct temp_file *t)
{
    static char said[256];
    size_t len;
    char *text = temp_file_journal(t, &len);
    if (!text)
        return NULL;
    snprintf(said, sizeof said, "%.*s", (int)len, text);
    free(text);
    return said;
}

static struct temp_file created(const char *name)
{
    struct temp_file t;
    struct nc_err err;
    if (temp_file_create(&t, below(name), &err)) {
        printf("# %s\n", err.message);
        exit(1);
    }
    return t;
}

static void test_published(void)
{
    struct nc_err err;
    struct temp_file t = created("deep/er/a");
    size_t len = strlen(below("deep/er/a"));
    CHECK(strncmp(t.path, below("deep/er/a."), len + 1) == 0 && strlen(t.path) == len + 14,
          "it is made beside its final name, with the folders above it");
    CHECK(!exists(below("deep/er/a")) && exists(t.path), "which it does not have yet");
    CHECK(write(t.fd, "bytes", 5) == 5 && temp_file_note(&t, "head\n", "0 x\n", 4, &err) == 0,
          "bytes and a note are written");
    CHECK(has_journal(t.path), "the journal is beside it");
    char *path = strdup(t.path);
    CHECK(temp_file_sync(&t, &err) == 0 && temp_file_publish(&t, &err) == 0, "it gets its name");
    CHECK(exists(below("deep/er/a")) && !exists(path) && !has_journal(path),
          "and there is nothing else left");
    CHECK(temp_file_sync_folder(below("deep/er/a"), &err) == 0, "which is made to last");
    temp_file_close(&t, false);
    CHECK(exists(below("deep/er/a")), "closing does not take what has its name");
    free(path);

    t = created("deep/er/a");
    CHECK(write(t.fd, "other", 5) == 5 && temp_file_publish(&t, &err) == 0,
          "another takes the place of the first");
    temp_file_close(&t, false);
    temp_file_close(&t, false);
    CHECK(t.fd == -1 && !t.path && !t.final, "closing twice is once");
}

static void test_kept(void)
{
    struct nc_err err;
    struct temp_file t = created("k"), again;
    char *path = strdup(t.path);
    CHECK(!journal_of(&t), "nothing is said of one that has no journal");
    temp_file_note(&t, "head\n", "0 x\n", 4, &err);
    temp_file_note(&t, "head\n", "1 y\n", 4, &err);
    CHECK_STR(journal_of(&t), "head\n0 x\n1 y\n", "the head is written once");
    CHECK(temp_file_adopt(&again, below("k"), strdup(path)) == -1,
          "nobody takes one that is being written");
    temp_file_close(&again, false);
    CHECK(exists(path) && has_journal(path), "nor removes it");
    temp_file_close(&t, true);
    CHECK(exists(path) && has_journal(path), "what is kept stays");
    CHECK(temp_file_adopt(&again, below("k"), strdup(path)) == 0, "and another goes on with it");
    CHECK_STR(journal_of(&again), "head\n0 x\n1 y\n", "knowing what is there");
    temp_file_note(&again, "head\n", "2 z\n", 4, &err);
    CHECK_STR(journal_of(&again), "head\n0 x\n1 y\n2 z\n", "and adding to it, without a head");
    temp_file_close(&again, false);
    CHECK(!exists(path) && !has_journal(path), "what is not kept goes, and its journal");
    CHECK(temp_file_adopt(&again, below("k"), strdup(path)) == -1, "then there is none to take");
    temp_file_close(&again, false);
    free(path);
}

static void test_failures(void)
{
    struct nc_err err;
    struct temp_file t;
    close(open(below("file"), O_CREAT | O_WRONLY, 0600));
    CHECK(temp_file_create(&t, below("file/below"), &err) && strcmp(err.code, "ENOTDIR") == 0,
          "a file is no folder");
    temp_file_close(&t, false);
    char name[300];
    memset(name, 'n', sizeof name);
    name[250] = '\0';
    CHECK(temp_file_create(&t, below(name), &err) && strcmp(err.code, "ENAMETOOLONG") == 0,
          "a name may be too long");
    temp_file_close(&t, false);
    CHECK(temp_file_sync_folder(below("nowhere/x"), &err) && strcmp(err.code, "ENOENT") == 0,
          "a folder that is not there can't be synced");
    CHECK(temp_file_sync_folder("/x", &err) == 0, "the root can");

    t = created("gone");
    unlink(t.path);
    CHECK(temp_file_publish(&t, &err) && strcmp(err.code, "ENOENT") == 0 &&
              strstr(err.message, t.path),
          "what somebody has removed gets no name, and is told by its own");
    temp_file_close(&t, false);
    CHECK(!exists(below("gone")), "and no name is made up");
}

int main(void)
{
    char command[128];
    if (!mkdtemp(folder))
        return 1;
    test_published();
    test_kept();
    test_failures();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0, "cleaned up");
    return unit_done();
}
