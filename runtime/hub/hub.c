#include "hub/hub.h"

#include "base/clock.h"
#include "base/text.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESOLVE_AGAIN_MAX = 5, RATE_WAIT_MOST_S = 300 };

int hub_init(struct hub *hub, const char *endpoint, const char *token, struct nc_err *err)
{
    *hub = (struct hub){0};
    if (url_parse(endpoint, &hub->endpoint, err))
        return -1;
    size_t n = strlen(endpoint);
    while (n && endpoint[n - 1] == '/')
        n--;
    hub->base = strndup(endpoint, n);
    if (token && *token) {
        size_t size = strlen(token) + sizeof "Bearer ";
        hub->authorization = malloc(size);
        if (hub->authorization)
            snprintf(hub->authorization, size, "Bearer %s", token);
    }
    if (!hub->base || (token && *token && !hub->authorization)) {
        hub_free(hub);
        return nc_err_set(err, "ENOMEM", "opening the hub: out of memory");
    }
    return 0;
}

void hub_free(struct hub *hub)
{
    if (hub->authorization)
        OPENSSL_cleanse(hub->authorization, strlen(hub->authorization));
    free(hub->authorization);
    free(hub->base);
    url_free(&hub->endpoint);
    *hub = (struct hub){0};
}

void hub_location_init(struct hub_location *l)
{
    pthread_mutex_init(&l->lock, NULL);
    l->url = NULL;
}

void hub_location_free(struct hub_location *l)
{
    free(l->url);
    pthread_mutex_destroy(&l->lock);
}

static int prepare(struct http_request *http)
{
    struct hub_request *r = (struct hub_request *)http;
    char range[64];
    http_request_reset(http);
    pthread_mutex_lock(&r->location->lock);
    if (r->location->url)
        buf_puts(&http->url, r->location->url);
    pthread_mutex_unlock(&r->location->lock);
    if (!http->url.len) {
        buf_puts(&http->url, r->hub->base);
        buf_puts(&http->url, r->path);
    }
    struct url to = {0};
    if (url_parse(buf_str(&http->url), &to, &http->err)) {
        url_free(&to);
        return -1;
    }
    r->away = !url_same_origin(&to, &r->hub->endpoint);
    snprintf(r->sent_to, sizeof r->sent_to, "%s", to.authority);
    url_free(&to);
    if (r->hub->authorization && !r->away)
        http_add_header(http, "Authorization", r->hub->authorization);
    http_add_header(http, "User-Agent", "ncrun/" NC_VERSION);
    http_add_header(http, "Accept-Encoding", "identity");
    if (http->ranged) {
        snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)http->range_start,
                 (unsigned long long)(http->range_start + http->dest_len - 1));
        http_add_header(http, "Range", range);
    }
    return 0;
}

static enum http_verdict follow(struct hub_request *r)
{
    struct http_request *http = &r->http;
    char location[URL_MAX];
    struct url base = {0}, to = {0};
    struct buf text;
    buf_init(&text, URL_MAX);
    enum http_verdict verdict = HTTP_FAILED;
    if (!http_header(http, "location", location, sizeof location)) {
        nc_err_set(&http->err, "HubError", "%s: %s answered %d without a Location", http->what,
                   r->sent_to, http->status);
    } else if (url_parse(buf_str(&http->url), &base, &http->err) == 0 &&
               url_resolve(&base, location, &to, &http->err) == 0 && url_format(&to, &text) == 0) {
        pthread_mutex_lock(&r->location->lock);
        free(r->location->url);
        r->location->url = buf_take(&text);
        pthread_mutex_unlock(&r->location->lock);
        verdict = HTTP_AGAIN;
    }
    url_free(&base);
    url_free(&to);
    buf_free(&text);
    return verdict;
}

/* The signed address has expired, or is not to be had any more: ask the hub for another. */
static enum http_verdict resolve_again(struct hub_request *r)
{
    struct http_request *http = &r->http;
    pthread_mutex_lock(&r->location->lock);
    if (r->location->url && strcmp(r->location->url, buf_str(&http->url)) == 0) {
        free(r->location->url);
        r->location->url = NULL;
    }
    pthread_mutex_unlock(&r->location->lock);
    nc_err_set(&http->err, "AccessDenied",
               "%s: %s refused the address that the hub had signed (%d), %d times in a row",
               http->what, r->sent_to, http->status, RESOLVE_AGAIN_MAX);
    http->err.status = http->status;
    return r->resolved_again++ < RESOLVE_AGAIN_MAX ? HTTP_RETRY : HTTP_FAILED;
}

/* RateLimit: "api";r=0;t=120 - wait t seconds where nothing remains. */
static void note_rate_limit(struct hub_request *r)
{
    char value[128];
    uint64_t left = 0, wait_s = 0;
    if (!http_header(&r->http, "ratelimit", value, sizeof value))
        return;
    const char *at = strstr(value, "r="), *t = strstr(value, "t=");
    if (!at || !t)
        return;
    at += 2;
    t += 2;
    if (text_take_u64(&at, &left) || text_take_u64(&t, &wait_s) || left)
        return;
    if (wait_s > RATE_WAIT_MOST_S)
        wait_s = RATE_WAIT_MOST_S;
    retry_gate_throttle(&r->hub->gate, clock_ms(), wait_s * 1000, 0);
}

static const struct reason {
    int status;
    const char *hub_code; /* X-Error-Code, or NULL for any other */
    const char *code;
    const char *text;
} reasons[] = {
    {401, "RepoNotFound", "RepoNotFound",
     "no such repository, or it is private: check the name, or set HF_TOKEN to a token that may "
     "read it"},
    {401, "GatedRepo", "GatedRepo",
     "the repository is gated: accept its terms on the hub and set HF_TOKEN to your token"},
    {401, NULL, "Unauthorized", "the hub refused the token: check HF_TOKEN"},
    {403, "GatedRepo", "GatedRepo",
     "the repository is gated and this token has no access yet: ask for it on the model's page"},
    {403, NULL, "AccessDenied", "the hub refused access: check what HF_TOKEN may read"},
    {404, "RepoNotFound", "RepoNotFound", "no such repository: check the name"},
    {404, "RevisionNotFound", "RevisionNotFound",
     "no such revision in this repository: check revision="},
    {404, "EntryNotFound", "EntryNotFound", "no such file in this revision"},
    {404, NULL, "NotFound", "not found on the hub"},
};

static enum http_verdict refused(struct hub_request *r)
{
    struct http_request *http = &r->http;
    char said[64] = "", text[200] = "";
    http_header(http, "x-error-code", said, sizeof said);
    http_header(http, "x-error-message", text, sizeof text);
    struct reason why = {http->status, NULL, "HubError", "the hub refused the request"};
    for (size_t i = sizeof reasons / sizeof reasons[0]; i--;) {
        if (reasons[i].status == http->status &&
            (!reasons[i].hub_code || strcmp(reasons[i].hub_code, said) == 0))
            why = reasons[i];
    }
    nc_err_set(&http->err, why.code, "%s: %s answered %d%s%s%s%s: %s", http->what, r->sent_to,
               http->status, *said ? " " : "", said, *text ? ", " : "", text, why.text);
    http->err.status = http->status;
    return HTTP_FAILED;
}

static enum http_verdict judge(struct http_request *http)
{
    struct hub_request *r = (struct hub_request *)http;
    int status = http->status;
    if (status == 200 || status == 206)
        return HTTP_OK;
    if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)
        return follow(r);
    if (retry_status(status)) {
        if (status == 429 && !r->away)
            note_rate_limit(r);
        nc_err_set(&http->err, status == 429 ? "RateLimited" : "HubError", "%s: %s answered %d",
                   http->what, r->sent_to, status);
        http->err.status = status;
        http->err.retryable = true;
        return HTTP_RETRY;
    }
    if (r->away && status >= 400 && status < 500)
        return resolve_again(r);
    return refused(r);
}

static void done(struct http_request *http)
{
    struct hub_request *r = (struct hub_request *)http;
    r->done(r);
}

static const struct http_hooks hooks = {NULL, prepare, judge, done};

void hub_request_init(struct hub_request *r, struct hub *hub, struct hub_location *location)
{
    *r = (struct hub_request){.hub = hub, .location = location};
    http_request_init(&r->http, &hooks);
    r->http.method = "GET";
    r->http.gate = &hub->gate;
}

void hub_request_free(struct hub_request *r)
{
    http_request_free(&r->http);
}
