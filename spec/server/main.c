/* ncdev: an S3 server and a model hub on loopback, for specs, the demo and benches. Prints the
 * export lines that a shell needs, then serves until SIGTERM. `ncdev help` lists its options. */
#include "front.h"
#include "request.h"

#include "base/clock.h"

#include <inttypes.h>
#include <libxml/parser.h>
#include <openssl/rand.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

void server_keys(struct server *s, struct keys *out)
{
    pthread_mutex_lock(&s->keys_lock);
    *out = s->keys;
    pthread_mutex_unlock(&s->keys_lock);
}

int64_t server_now(const struct server *s)
{
    return clock_wall_s() + s->opt.clock;
}

static int add_faults(struct server *s, struct nc_err *err)
{
    for (unsigned i = 0; i < s->opt.fault_count; i++) {
        if (faults_add(&s->faults, s->opt.faults[i], err))
            return -1;
    }
    return 0;
}

/* For what has to be shown of very long listings. */
static void add_keys(struct server *s)
{
    static const struct store_condition none;
    char key[32];
    for (uint64_t i = 0; i < s->opt.keys; i++) {
        snprintf(key, sizeof key, "many/%07" PRIu64, i);
        struct object *o = object_new(key);
        snprintf(o->etag, sizeof o->etag, "d41d8cd98f00b204e9800998ecf8427e"); /* MD5 of nothing */
        o->mtime = server_now(s);
        if (store_put(&s->store, s->opt.bucket, o, &none) != STORE_OK)
            object_unref(o);
    }
}

static int server_init(struct server *s, struct nc_err *err)
{
    const struct options *o = &s->opt;
    faults_init(&s->faults);
    counters_init(&s->counters);
    pthread_mutex_init(&s->keys_lock, NULL);
    for (int side = 0; side < SIDES; side++) {
        bool limited = side == SIDE_S3 || side == SIDE_CDN;
        throttle_init(&s->rate[side][0], limited ? o->rate : 0);
        throttle_init(&s->rate[side][1], limited ? o->rate : 0);
    }
    snprintf(s->keys.access_key, sizeof s->keys.access_key, "%s", o->access_key);
    snprintf(s->keys.secret_key, sizeof s->keys.secret_key, "%s", o->secret_key);
    snprintf(s->keys.session_token, sizeof s->keys.session_token, "%s", o->session_token);
    if (RAND_bytes(s->keys.cdn, sizeof s->keys.cdn) != 1)
        return nc_err_set(err, "Failed", "no random numbers");
    int rc = store_open(&s->store, o->memory ? NULL : o->root, o->keep, err);
    hub_repos_init(&s->hub, o->hub, o->lfs_over, rc ? NULL : o->root);
    if (rc || add_faults(s, err))
        return -1;
    store_bucket_create(&s->store, o->bucket, server_now(s));
    add_keys(s);
    return 0;
}

static void server_free(struct server *s)
{
    store_close(&s->store);
    hub_repos_free(&s->hub);
    counters_free(&s->counters);
    faults_free(&s->faults);
    for (int side = 0; side < SIDES; side++) {
        throttle_free(&s->rate[side][0]);
        throttle_free(&s->rate[side][1]);
    }
    pthread_mutex_destroy(&s->keys_lock);
}

/* One line for a shell to eval; single quotes keep everything but themselves. */
static void export_line(const char *name, const char *value)
{
    printf("export %s='", name);
    for (; *value; value++) {
        if (*value == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*value);
    }
    fputs("'\n", stdout);
}

static void print_exports(const struct server *s)
{
    char url[128], admin[140];
    snprintf(url, sizeof url, "%s://%s:%u", s->opt.tls_cert ? "https" : "http", s->opt.host,
             s->port);
    snprintf(admin, sizeof admin, "%s/-", url);
    export_line("NC_BUCKET", s->opt.bucket);
    export_line("AWS_ACCESS_KEY_ID", s->keys.access_key);
    export_line("AWS_SECRET_ACCESS_KEY", s->keys.secret_key);
    if (*s->keys.session_token)
        export_line("AWS_SESSION_TOKEN", s->keys.session_token);
    export_line("AWS_ENDPOINT_URL", url);
    export_line("AWS_REGION", s->opt.region);
    export_line("AWS_EC2_METADATA_DISABLED", "true");
    export_line("HF_ENDPOINT", url);
    export_line("NCDEV_ADMIN", admin);
    fflush(stdout);
}

static void raise_descriptor_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

static void help(void)
{
    struct buf text;
    buf_init(&text, 1 << 16);
    options_help(&text);
    faults_help(&text);
    admin_help(&text);
    fputs(buf_str(&text), stdout);
    buf_free(&text);
}

static int serve(struct server *s, const sigset_t *ends)
{
    struct nc_err err;
    struct front *front = NULL;
    int sig, rc = 1;
    if (server_init(s, &err) || front_start(&front, s, &err)) {
        fprintf(stderr, "ncdev: %s\n", err.message);
        rc = strcmp(err.code, "Usage") == 0 ? 2 : 1;
    } else {
        print_exports(s);
        sigwait(ends, &sig);
        atomic_store(&s->stopping, true);
        front_stop(front);
        rc = 0;
    }
    server_free(s);
    return rc;
}

int main(int argc, char **argv)
{
    static struct server srv;
    struct nc_err err;
    if (argc == 2 && (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0)) {
        help();
        return 0;
    }
    options_default(&srv.opt);
    if (options_parse(&srv.opt, argc, argv, &err)) {
        fprintf(stderr, "ncdev: %s\n", err.message);
        return 2;
    }
    /* Blocked here, so in every thread: main waits for them by sigwait. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    xmlInitParser();
    int rc = serve(&srv, &ends);
    xmlCleanupParser();
    return rc;
}
