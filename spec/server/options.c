#include "options.h"

#include "text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, SIZE, SECONDS, YES, ETAG, FAULT };

static const struct option {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *help;
} table[] = {
    {"root", TEXT, offsetof(struct options, root),
     "DIR  folder of the objects; kept and found again"},
    {"memory", YES, offsetof(struct options, memory),
     "yes  objects in memory; root= then holds the hub's digests alone"},
    {"keep", SIZE, offsetof(struct options, keep),
     "BYTES  of deleted objects in memory that new ones overwrite; for benches (0)"},
    {"hub", TEXT, offsetof(struct options, hub),
     "DIR  hub repositories: owner/name/..., revisions owner/name@rev/..."},
    {"host", TEXT, offsetof(struct options, host), "address to listen on (127.0.0.1)"},
    {"port", SIZE, offsetof(struct options, port), "of S3, hub and admin; 0 takes a free one (0)"},
    {"cdn_port", SIZE, offsetof(struct options, cdn_port), "of the hub's CDN (0)"},
    {"bucket", TEXT, offsetof(struct options, bucket), "made at start (ncdev)"},
    {"keys", SIZE, offsetof(struct options, keys),
     "N  empty objects in it from the start: many/0000000, many/0000001, ... (0)"},
    {"region", TEXT, offsetof(struct options, region), "(us-east-1)"},
    {"access_key", TEXT, offsetof(struct options, access_key), "(ncdev)"},
    {"secret_key", TEXT, offsetof(struct options, secret_key), "(ncdev-secret)"},
    {"session_token", TEXT, offsetof(struct options, session_token),
     "wanted with every S3 request"},
    {"hf_token", TEXT, offsetof(struct options, hf_token), "the hub's valid token (any is)"},
    {"lfs_over", SIZE, offsetof(struct options, lfs_over),
     "BYTES  larger hub files are LFS files (1m)"},
    {"page", SIZE, offsetof(struct options, page), "entries in a page of the hub's tree (1000)"},
    {"expires_s", SECONDS, offsetof(struct options, expires_s), "life of a CDN URL (3600)"},
    {"sts_expires_s", SECONDS, offsetof(struct options, sts_expires_s),
     "life of handed-out credentials (3600)"},
    {"container_token", TEXT, offsetof(struct options, container_token),
     "Authorization that /-/container wants"},
    {"rate", SIZE, offsetof(struct options, rate),
     "BYTES a second, each direction of S3 and CDN, all connections together (no limit)"},
    {"idle_s", SIZE, offsetof(struct options, idle_s),
     "idle connections are closed after that (600)"},
    {"clock", SECONDS, offsetof(struct options, clock), "seconds the server's clock is ahead (0)"},
    {"etag", ETAG, offsetof(struct options, fast_etag), "md5 | fast: XXH3 in place of MD5 (md5)"},
    {"tls_cert", TEXT, offsetof(struct options, tls_cert),
     "PEM file; with tls_key: https on both ports"},
    {"tls_key", TEXT, offsetof(struct options, tls_key), "PEM file"},
    {"fault", FAULT, 0, "RULE  any number; see below"},
};

#define OPTIONS (sizeof table / sizeof *table)

void options_default(struct options *o)
{
    *o = (struct options){
        .host = "127.0.0.1",
        .bucket = "ncdev",
        .region = "us-east-1",
        .access_key = "ncdev",
        .secret_key = "ncdev-secret",
        .session_token = "",
        .lfs_over = 1 << 20,
        .page = 1000,
        .idle_s = 600,
        .expires_s = 3600,
        .sts_expires_s = 3600,
    };
}

static bool set(struct options *o, const struct option *d, const char *value)
{
    char *at = (char *)o + d->offset;
    switch (d->kind) {
    case TEXT:
        *(const char **)at = value;
        return *value != '\0' || strcmp(d->name, "session_token") == 0;
    case SIZE:
        return str_size(value, (uint64_t *)at);
    case SECONDS:
        return str_i64(value, (int64_t *)at);
    case YES:
        *(bool *)at = strcmp(value, "yes") == 0;
        return *(bool *)at || strcmp(value, "no") == 0;
    case ETAG:
        *(bool *)at = strcmp(value, "fast") == 0;
        return *(bool *)at || strcmp(value, "md5") == 0;
    case FAULT:
        if (o->fault_count == OPTIONS_MAX_FAULTS)
            return false;
        o->faults[o->fault_count++] = value;
        return true;
    }
    return false;
}

static int unknown(const char *word, struct nc_err *err)
{
    struct buf names;
    buf_init(&names, 4096);
    for (size_t i = 0; i < OPTIONS; i++)
        buf_printf(&names, "%s%s=", i ? " " : "", table[i].name);
    nc_err_set(err, "Usage", "%s is not an option; valid are %s", word, buf_str(&names));
    buf_free(&names);
    return -1;
}

static const struct option *find(const char *word, size_t n)
{
    for (size_t i = 0; i < OPTIONS; i++) {
        if (strlen(table[i].name) == n && memcmp(table[i].name, word, n) == 0)
            return &table[i];
    }
    return NULL;
}

int options_parse(struct options *o, int argc, char **argv, struct nc_err *err)
{
    for (int i = 1; i < argc; i++) {
        const char *eq = strchr(argv[i], '=');
        const struct option *d = eq ? find(argv[i], (size_t)(eq - argv[i])) : NULL;
        if (!d)
            return unknown(argv[i], err);
        if (!set(o, d, eq + 1))
            return nc_err_set(err, "Usage", "%s=: bad value '%s'; wanted: %s", d->name, eq + 1,
                              d->help);
    }
    if (!o->root && !o->memory)
        return nc_err_set(err, "Usage", "root=DIR or memory=yes is needed");
    if (!o->tls_cert != !o->tls_key)
        return nc_err_set(err, "Usage", "tls_cert= and tls_key= go together");
    if (o->port > 65535 || o->cdn_port > 65535 || o->page == 0)
        return nc_err_set(err, "Usage", "ports are at most 65535, page= is at least 1");
    return 0;
}

void options_help(struct buf *out)
{
    buf_puts(
        out,
        "ncdev: an S3 server and a model hub on loopback, for tests\n\n"
        "  ncdev root=DIR [hub=DIR] [name=value ...]   prints export lines, serves until SIGTERM\n"
        "  ncdev help\n\noptions:\n");
    for (size_t i = 0; i < OPTIONS; i++)
        buf_printf(out, "  %-16s %s\n", table[i].name, table[i].help);
    buf_putc(out, '\n');
}
