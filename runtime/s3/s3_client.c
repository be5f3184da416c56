/* What all requests to one bucket share: address, keys, region. */
#include "s3/s3.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wipe(char **s)
{
    if (*s)
        OPENSSL_cleanse(*s, strlen(*s));
    free(*s);
    *s = NULL;
}

/* "s3.eu-west-1.amazonaws.com", or its dot-less namesake in China. */
static void aws_endpoint(const char *region, char *out, size_t size)
{
    const char *tail = strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
    snprintf(out, size, "https://s3.%s.amazonaws.com%s", region, tail);
}

int s3_client_init(struct s3_client *c, const struct s3_config *config, struct nc_err *err)
{
    char aws[256];
    *c = (struct s3_client){.virtual_host = config->virtual_host,
                            .renewable = config->renewable,
                            .attempts_max = config->attempts_max,
                            .content_md5 = config->content_md5};
    const char *endpoint = config->endpoint;
    if (!endpoint) {
        aws_endpoint(config->region, aws, sizeof aws);
        endpoint = aws;
    }
    if (url_parse(endpoint, &c->endpoint, err)) {
        url_free(&c->endpoint);
        return -1;
    }
    size_t n = strlen(c->endpoint.path);
    while (n && c->endpoint.path[n - 1] == '/')
        c->endpoint.path[--n] = '\0';
    pthread_mutex_init(&c->lock, NULL);
    signer_init(&c->signer);
    c->bucket = strdup(config->bucket ? config->bucket : "");
    c->region = strdup(config->region);
    c->ca_file = config->ca_file ? strdup(config->ca_file) : NULL;
    if (!c->bucket || !c->region || (config->ca_file && !c->ca_file)) {
        s3_client_free(c);
        return nc_err_set(err, "ENOMEM", "opening a bucket: out of memory");
    }
    if (s3_client_set_keys(c, config->access, config->secret, config->token, err)) {
        s3_client_free(c);
        return -1;
    }
    return 0;
}

void s3_client_free(struct s3_client *c)
{
    wipe(&c->access);
    wipe(&c->secret);
    wipe(&c->token);
    free(c->bucket);
    free(c->region);
    free(c->ca_file);
    signer_free(&c->signer);
    url_free(&c->endpoint);
    pthread_mutex_destroy(&c->lock);
    *c = (struct s3_client){0};
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void swap(char **a, char **b)
{
    char *was = *a;
    *a = *b;
    *b = was;
}

int s3_client_set_keys(struct s3_client *c, const char *access, const char *secret,
                       const char *token, struct nc_err *err)
{
    char *a = strdup(access), *s = strdup(secret), *t = token && *token ? strdup(token) : NULL;
    if (!a || !s || (token && *token && !t)) {
        wipe(&a);
        wipe(&s);
        wipe(&t);
        return nc_err_set(err, "ENOMEM", "taking over keys: out of memory");
    }
    pthread_mutex_lock(&c->lock);
    if (!same(c->access, a) || !same(c->secret, s) || !same(c->token, t)) {
        swap(&c->access, &a);
        swap(&c->secret, &s);
        swap(&c->token, &t);
        c->keys_generation++;
        c->refused_ms = 0;
    }
    c->keys_expired = false;
    pthread_mutex_unlock(&c->lock);
    wipe(&a);
    wipe(&s);
    wipe(&t);
    return 0;
}

bool s3_client_keys_expired(struct s3_client *c)
{
    pthread_mutex_lock(&c->lock);
    bool expired = c->keys_expired;
    pthread_mutex_unlock(&c->lock);
    return expired;
}

static bool same_keys(struct s3_client *a, const char *access, const char *secret,
                      const char *token)
{
    pthread_mutex_lock(&a->lock);
    bool is = same(a->access, access) && same(a->secret, secret) && same(a->token, token);
    pthread_mutex_unlock(&a->lock);
    return is;
}

bool s3_client_same_service(struct s3_client *a, struct s3_client *b)
{
    if (a == b)
        return true;
    if (!url_same_origin(&a->endpoint, &b->endpoint) || !same(a->endpoint.path, b->endpoint.path))
        return false;
    pthread_mutex_lock(&b->lock);
    char *access = strdup(b->access), *secret = strdup(b->secret);
    char *token = b->token ? strdup(b->token) : NULL;
    bool whole = access && secret && (token || !b->token);
    pthread_mutex_unlock(&b->lock);
    bool is = whole && same_keys(a, access, secret, token);
    wipe(&access);
    wipe(&secret);
    wipe(&token);
    return is;
}
