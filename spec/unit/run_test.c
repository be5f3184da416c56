#include "run/family.h"
#include "run/relay.h"
#include "run/sink.h"
#include "run/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/loop.h"
#include "unit.h"

static struct loop *loop;
static char folder[] = "/tmp/ncrun-run-test.XXXXXX";

static char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Waits up to ten seconds for the event of this token. */
static bool arrives(uint64_t token)
{
    struct loop_event ev;
    for (uint64_t end_ms = clock_ms() + 10000; clock_ms() < end_ms;) {
        if (loop_wait(loop, 100, &ev, 1) && ev.token == token)
            return true;
    }
    return false;
}

static void test_sink_file(void)
{
    struct sink *s = NULL;
    char *path = in_folder("a/b/log");
    static char block[300000];
    memset(block, 'x', sizeof block);
    CHECK(sink_new_file(&s, path, NULL) == 0, "a file sink opens");
    for (int i = 0; i < 10; i++)
        sink_feed(s, block, sizeof block);
    CHECK(sink_flush(s, 5000, 5000), "all it was fed is written");
    struct stat st = {0};
    CHECK(stat(path, &st) == 0 && st.st_size == 10 * (off_t)sizeof block,
          "into folders it has made");
    struct sink_state state = sink_state(s);
    CHECK(state.written == 10 * sizeof block && !state.lost && !state.error, "and counted");
    sink_free(s);
}

static void test_sink_full(void)
{
    struct sink *s = NULL;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    CHECK(sink_new_fd(&s, fd, NULL) == 0, "a sink on a full disk opens");
    sink_feed(s, "hello", 5);
    CHECK(sink_flush(s, 5000, 5000), "takes what it is fed");
    struct sink_state state = sink_state(s);
    CHECK(state.lost == 5 && state.error == ENOSPC, "and says that it is lost, and why");
    sink_free(s);
    close(fd);
}

static void test_sink_stuck(void)
{
    int ends[2];
    struct sink *s = NULL;
    static char block[SINK_BUFFER];
    memset(block, 'x', sizeof block);
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && sink_new_fd(&s, ends[1], NULL) == 0,
          "a sink on a pipe opens");
    uint64_t start_ms = clock_ms();
    for (int i = 0; i < 4; i++)
        sink_feed(s, block, sizeof block);
    uint64_t took_ms = clock_ms() - start_ms;
    CHECK(took_ms >= 900 && took_ms < 3000,
          "one that nobody reads holds its feeder up once, for a second");
    CHECK(sink_state(s).lost > 2 * SINK_BUFFER, "and loses what does not fit");
    CHECK(!sink_flush(s, 100, 1000), "it is never flushed");
    uint64_t token = loop_token(loop);
    sink_when_empty(s, token);
    uint64_t lost = sink_state(s).lost, got = 0, kept = 4 * (uint64_t)sizeof block - lost;
    char *all = malloc(2 * SINK_BUFFER);
    while (got < kept)
        got += (uint64_t)read(ends[0], all + got, 2 * SINK_BUFFER - got);
    CHECK(arrives(token), "once it is read, its emptiness is posted");
    sink_feed(s, "on", 2);
    char note[128], want[128];
    snprintf(want, sizeof want, "\n[ncrun: %llu bytes are missing here]\non",
             (unsigned long long)lost);
    size_t len = 0;
    while (len < strlen(want))
        len += (size_t)read(ends[0], note + len, sizeof note - 1 - len);
    note[len] = '\0';
    CHECK_STR(note, want, "and it goes on, saying how much is missing");
    close(ends[0]);
    sink_feed(s, "gone", 4);
    sink_flush(s, 5000, 5000);
    CHECK(sink_state(s).closed, "one whose reader has gone is closed");
    sink_free(s);
    close(ends[1]);
    free(all);
}

/* Runs a script of sh to its end; its output is in the file "out". */
static struct supervisor_result run_script(const char *script, uint64_t grace_ms, int stop_after_ms,
                                           uint64_t *took_ms)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    struct sink *sink = NULL;
    struct supervisor *s = NULL;
    struct nc_err err;
    unlink(in_folder("out"));
    sink_new_file(&sink, in_folder("out"), NULL);
    struct supervisor_options opt = {
        .command = {.argv = argv, .stream[0].io = CHILD_NULL},
        .grace_ms = grace_ms,
        .sinks = &sink,
        .sink_count = 1,
        .told_token = loop_token(loop),
        .warned_token = loop_token(loop),
        .over_token = loop_token(loop),
    };
    struct supervisor_result result = {-1, -1};
    uint64_t start_ms = clock_ms();
    if (supervisor_start(&s, &opt, &err) == 0) {
        if (stop_after_ms) {
            usleep((useconds_t)stop_after_ms * 1000);
            supervisor_stop(s);
        }
        if (arrives(opt.over_token))
            result = supervisor_result(s);
        supervisor_free(s);
    }
    *took_ms = clock_ms() - start_ms;
    sink_free(sink);
    return result;
}

static void check_output(const char *want, const char *what)
{
    char got[256] = "";
    int fd = open(in_folder("out"), O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, got, sizeof got - 1);
    got[n > 0 ? n : 0] = '\0';
    close(fd);
    CHECK_STR(got, want, what);
}

static void test_supervisor(void)
{
    uint64_t took_ms;
    struct supervisor_result r = run_script("echo out; echo err >&2; exit 3", 1000, 0, &took_ms);
    CHECK(r.code == 3 && r.signal == 0, "a command's code is its own");
    check_output("out\nerr\n", "its outputs are one, in order");
    r = run_script("kill -KILL $$", 1000, 0, &took_ms);
    CHECK(r.signal == SIGKILL, "and so is the signal that ended it");
    r = run_script("sleep 60 & echo done", 1000, 0, &took_ms);
    CHECK(r.code == 0 && took_ms < 3000, "what it leaves behind is not waited for");
    r = run_script("trap 'echo told; exit 4' TERM; while :; do sleep 0.02; done 2>/dev/null", 5000,
                   300, &took_ms);
    CHECK(r.code == 4 && took_ms < 3000, "stop is a TERM, and the code still its own");
    r = run_script("trap '' TERM; setsid sleep 60 & while :; do sleep 0.02; done", 300, 100,
                   &took_ms);
    CHECK(r.signal == SIGKILL && took_ms < 3000, "after the grace it is killed");
    CHECK(family_signal(0, 0, 0) == 0, "and so is who has left its group");
}

static void test_not_found(void)
{
    char *argv[] = {"/no/such/command", NULL};
    struct supervisor *s = NULL;
    struct nc_err err;
    struct supervisor_options opt = {.command = {.argv = argv, .stream[0].io = CHILD_NULL}};
    CHECK(supervisor_start(&s, &opt, &err) == -1, "a command that is not there is an error");
    CHECK_STR(err.code, "CommandNotFound", "of that code");
}

/* A struct child's zombie is left alone while those of others are taken. */
static void test_reaping(void)
{
    char *argv[] = {"true", NULL};
    struct child ours;
    struct child_options opt = {.argv = argv, .stream[0].io = CHILD_NULL};
    CHECK(child_spawn(&ours, &opt, NULL) == 0, "a child of somebody starts");
    pid_t stranger = fork();
    if (stranger == 0)
        _exit(0);
    siginfo_t info;
    waitid(P_PID, (id_t)ours.pid, &info, WEXITED | WNOWAIT);
    waitid(P_PID, (id_t)stranger, &info, WEXITED | WNOWAIT);
    family_reap();
    CHECK(kill(stranger, 0) != 0, "a stranger's zombie is taken");
    CHECK(child_owns(ours.pid) && child_reap(&ours),
          "one that somebody stands for is left to them");
    CHECK(!child_owns(ours.pid), "and forgotten then");
    child_free(&ours);
}

int main(void)
{
    loop_catch_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!mkdtemp(folder) || loop_new(&loop, NULL))
        return 1;
    test_sink_file();
    test_sink_full();
    test_sink_stuck();
    test_reaping();
    test_supervisor();
    test_not_found();
    loop_free(loop);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 1 : unit_done(); /* NOLINT(cert-env33-c): a folder of ours */
}
