#include "s3/sign.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "net/url.h"

enum {
    MAX_HEADERS = 32 + 4, /* the caller's and our own */
    MAX_PARAMETERS = 64 + 8,
};

static const char algorithm[] = "AWS4-HMAC-SHA256";

void signer_init(struct signer *s)
{
    *s = (struct signer){0};
    buf_init(&s->text, 1 << 20);
}

void signer_free(struct signer *s)
{
    hmac_free(&s->day);
    sha256_free(&s->hash);
    buf_free(&s->text);
    OPENSSL_cleanse(s->day_of, sizeof s->day_of);
}

static int bad(struct nc_err *err, const char *why)
{
    return nc_err_set(err, "BadRequest", "can't sign the request: %s", why);
}

/* The day's key is a chain of four HMACs that starts from the secret; it changes when one of its
 * ingredients does, and their digest tells without keeping the secret. */
static int use_day_key(struct signer *s, const struct sign_keys *keys, const char *day)
{
    const char *const parts[] = {day, keys->region, keys->service, "aws4_request"};
    unsigned char of[32], key[32];
    if (sha256_init(&s->hash))
        return -1;
    sha256_update(&s->hash, keys->secret, strlen(keys->secret) + 1);
    for (int i = 0; i < 3; i++)
        sha256_update(&s->hash, parts[i], strlen(parts[i]) + 1);
    sha256_final(&s->hash, of);
    if (memcmp(of, s->day_of, sizeof of) == 0)
        return 0;

    memset(s->day_of, 0, sizeof s->day_of);
    buf_clear(&s->text);
    buf_puts(&s->text, "AWS4");
    buf_puts(&s->text, keys->secret);
    int rc = s->text.failed ? -1 : hmac_key(&s->day, s->text.data, s->text.len);
    if (s->text.data)
        OPENSSL_cleanse(s->text.data, s->text.len);
    for (int i = 0; i < 4 && !rc; i++) {
        rc = hmac_sign(&s->day, parts[i], strlen(parts[i]), key);
        if (!rc)
            rc = hmac_key(&s->day, key, sizeof key);
    }
    OPENSSL_cleanse(key, sizeof key);
    if (!rc)
        memcpy(s->day_of, of, sizeof of);
    return rc;
}

struct parameter {
    const char *name, *value;
    size_t name_len, value_len;
};

static int compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_parameters(const struct parameter *a, const struct parameter *b)
{
    int order = compare_bytes(a->name, a->name_len, b->name, b->name_len);
    return order ? order : compare_bytes(a->value, a->value_len, b->value, b->value_len);
}

/* Sorted by name, then value; "name=" where there is no value. */
static int add_query(struct buf *out, const char *query)
{
    struct parameter list[MAX_PARAMETERS];
    size_t count = 0;
    while (query && *query) {
        size_t len = strcspn(query, "&");
        struct parameter p = {.name = query, .name_len = strcspn(query, "=&")};
        p.value = query + p.name_len;
        if (*p.value == '=')
            p.value++;
        p.value_len = (size_t)(query + len - p.value);
        query += len + (query[len] == '&');
        if (len == 0)
            continue;
        if (count == MAX_PARAMETERS)
            return -1;
        size_t at = count++;
        for (; at > 0 && compare_parameters(&list[at - 1], &p) > 0; at--)
            list[at] = list[at - 1];
        list[at] = p;
    }
    for (size_t i = 0; i < count; i++) {
        if (i)
            buf_putc(out, '&');
        buf_add(out, list[i].name, list[i].name_len);
        buf_putc(out, '=');
        buf_add(out, list[i].value, list[i].value_len);
    }
    return 0;
}

/* Trimmed, with runs of blanks folded into one. */
static void add_value(struct buf *out, const char *value)
{
    size_t len = text_trim(&value, strlen(value));
    while (len) {
        const char *blank = memchr(value, ' ', len);
        size_t word = blank ? (size_t)(blank - value) : len;
        buf_add(out, value, word);
        value += word;
        len -= word;
        if (len)
            buf_putc(out, ' ');
        while (len && *value == ' ') {
            value++;
            len--;
        }
    }
}

/* The headers to sign, sorted by name; the sort keeps the order of those with the same name. */
struct header_list {
    const struct sign_header *at[MAX_HEADERS];
    size_t count;
};

static void insert_header(struct header_list *list, const struct sign_header *h)
{
    size_t at = list->count++;
    for (; at > 0 && text_icmp(list->at[at - 1]->name, h->name) > 0; at--)
        list->at[at] = list->at[at - 1];
    list->at[at] = h;
}

static bool same_name(const struct header_list *list, size_t i)
{
    return i > 0 && text_ieq(list->at[i]->name, list->at[i - 1]->name);
}

static void add_headers(struct buf *out, const struct header_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (same_name(list, i)) {
            buf_putc(out, ',');
        } else {
            if (i)
                buf_putc(out, '\n');
            for (const char *c = list->at[i]->name; *c; c++)
                buf_putc(out, text_lower(*c));
            buf_putc(out, ':');
        }
        add_value(out, list->at[i]->value);
    }
    buf_putc(out, '\n');
}

static void add_names(struct buf *out, const struct header_list *list, const char *separator)
{
    for (size_t i = 0; i < list->count; i++) {
        if (same_name(list, i))
            continue;
        if (i)
            buf_puts(out, separator);
        for (const char *c = list->at[i]->name; *c; c++)
            buf_putc(out, text_lower(*c));
    }
}

/* What every signature needs, worked out once. */
struct signing {
    char date[TEXT_AMZ_DATE_SIZE];
    char day[9];
    char scope[256];
    struct header_list headers;
};

static int prepare(struct signing *g, const struct sign_keys *keys,
                   const struct sign_request *request, struct nc_err *err)
{
    text_amz_date(request->time, g->date);
    snprintf(g->day, sizeof g->day, "%.8s", g->date);
    int n = snprintf(g->scope, sizeof g->scope, "%s/%s/%s/aws4_request", g->day, keys->region,
                     keys->service);
    if (n >= (int)sizeof g->scope)
        return bad(err, "the region's name is too long");
    if (request->header_count > MAX_HEADERS - 4)
        return bad(err, "too many headers");
    for (size_t i = 0; i < request->header_count; i++) {
        const struct sign_header *h = &request->headers[i];
        if (text_has_control(h->value, strlen(h->value)) || h->name[strcspn(h->name, ": \r\n")])
            return bad(err, "a header holds a control character");
    }
    return 0;
}

/* Fills hex with the signature; s->text is left holding the string to sign. */
static int sign(struct signer *s, const struct sign_keys *keys, const struct sign_request *request,
                const struct signing *g, const char *query, char hex[SHA256_HEX_SIZE],
                struct nc_err *err)
{
    if (use_day_key(s, keys, g->day))
        return nc_err_set(err, "ENOMEM", "can't sign the request: out of memory");
    struct buf *text = &s->text;
    buf_clear(text);
    buf_puts(text, request->method);
    buf_putc(text, '\n');
    buf_puts(text, request->path);
    buf_putc(text, '\n');
    if (add_query(text, query))
        return bad(err, "too many parameters");
    buf_putc(text, '\n');
    add_headers(text, &g->headers);
    buf_putc(text, '\n');
    add_names(text, &g->headers, ";");
    buf_putc(text, '\n');
    buf_puts(text, request->payload_hash);
    if (text->failed)
        return bad(err, "it is too large");

    unsigned char raw[32];
    if (sha256_init(&s->hash))
        return nc_err_set(err, "ENOMEM", "can't sign the request: out of memory");
    sha256_update(&s->hash, text->data, text->len);
    sha256_final_hex(&s->hash, hex);
    buf_clear(text);
    const char *const lines[] = {algorithm, g->date, g->scope, hex};
    for (int i = 0; i < 4; i++) {
        if (i)
            buf_putc(text, '\n');
        buf_puts(text, lines[i]);
    }
    if (text->failed || hmac_sign(&s->day, text->data, text->len, raw))
        return nc_err_set(err, "ENOMEM", "can't sign the request: out of memory");
    text_hex(raw, sizeof raw, hex);
    return 0;
}

int sign_v4(struct signer *s, const struct sign_keys *keys, const struct sign_request *request,
            char date[TEXT_AMZ_DATE_SIZE], char authorization[SIGN_AUTHORIZATION_MAX],
            struct nc_err *err)
{
    struct signing g = {0};
    if (prepare(&g, keys, request, err))
        return -1;
    const struct sign_header own[] = {
        {"host", request->host},
        {"x-amz-date", g.date},
        {"x-amz-content-sha256", strcmp(keys->service, "s3") ? NULL : request->payload_hash},
        {"x-amz-security-token", keys->token && *keys->token ? keys->token : NULL},
    };
    for (size_t i = 0; i < request->header_count; i++)
        insert_header(&g.headers, &request->headers[i]);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (own[i].value)
            insert_header(&g.headers, &own[i]);
    }
    char hex[SHA256_HEX_SIZE];
    if (sign(s, keys, request, &g, request->query, hex, err))
        return -1;
    buf_clear(&s->text);
    const char *const head[] = {algorithm, " Credential=", keys->access,
                                "/",       g.scope,        ", SignedHeaders="};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        buf_puts(&s->text, head[i]);
    add_names(&s->text, &g.headers, ";");
    buf_puts(&s->text, ", Signature=");
    buf_puts(&s->text, hex);
    if (s->text.failed || s->text.len >= SIGN_AUTHORIZATION_MAX)
        return bad(err, "the access key or a header's name is too long");
    memcpy(authorization, s->text.data, s->text.len + 1);
    memcpy(date, g.date, sizeof g.date);
    return 0;
}

int sign_query(struct signer *s, const struct sign_keys *keys, const struct sign_request *request,
               unsigned expires_s, struct buf *query, struct nc_err *err)
{
    struct signing g = {0};
    if (expires_s == 0 || expires_s > 7 * 86400)
        return bad(err, "a signed URL is good for 1 second to 7 days");
    if (prepare(&g, keys, request, err))
        return -1;
    const struct sign_header host = {"host", request->host};
    insert_header(&g.headers, &host);
    for (size_t i = 0; i < request->header_count; i++)
        insert_header(&g.headers, &request->headers[i]);

    char expires[12], credential[512];
    snprintf(expires, sizeof expires, "%u", expires_s);
    int n = snprintf(credential, sizeof credential, "%s/%s", keys->access, g.scope);
    if (n >= (int)sizeof credential)
        return bad(err, "the access key is too long");
    buf_clear(query);
    if (request->query)
        buf_puts(query, request->query);
    url_query_add(query, "X-Amz-Algorithm", algorithm);
    url_query_add(query, "X-Amz-Credential", credential);
    url_query_add(query, "X-Amz-Date", g.date);
    url_query_add(query, "X-Amz-Expires", expires);
    if (keys->token && *keys->token)
        url_query_add(query, "X-Amz-Security-Token", keys->token);
    buf_puts(query, "&X-Amz-SignedHeaders=");
    add_names(query, &g.headers, "%3B");
    if (query->failed)
        return bad(err, "it is too large");
    char hex[SHA256_HEX_SIZE];
    if (sign(s, keys, request, &g, query->data, hex, err))
        return -1;
    return url_query_add(query, "X-Amz-Signature", hex) ? bad(err, "it is too large") : 0;
}
