#include "chunked.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* LAST: the empty line after a final chunk without trailers. */
enum state { HEAD, DATA, DATA_END, TRAILER, LAST, DONE };

bool chunked_init(struct chunked *c, const struct sigv4_result *seed)
{
    *c = (struct chunked){.seed = *seed};
    const char *kind = seed->payload;
    c->is_signed = str_starts(kind, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    c->has_trailer = str_ends(kind, "-TRAILER");
    memcpy(c->previous, seed->signature, sizeof c->previous);
    buf_init(&c->trailer, 8192);
    return strcmp(kind, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD") == 0 ||
           strcmp(kind, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") == 0 ||
           strcmp(kind, "STREAMING-UNSIGNED-PAYLOAD-TRAILER") == 0;
}

static const char *check_chunk(struct chunked *c)
{
    char hash[65], want[65];
    if (!c->is_signed)
        return NULL;
    digest_hex(&c->digest, hash);
    sigv4_chunk(&c->seed, "PAYLOAD", c->previous, hash, want);
    memcpy(c->previous, want, sizeof want);
    return sigv4_same(want, c->wanted) ? NULL : "SignatureDoesNotMatch";
}

/* "10000;chunk-signature=ab12.." */
static const char *head_line(struct chunked *c)
{
    char *end;
    size_t digits = strspn(c->line, "0123456789abcdefABCDEF");
    c->left = strtoull(c->line, &end, 16);
    if (digits == 0 || digits > 15)
        return "InvalidRequest";
    const char *name = ";chunk-signature=";
    if (c->is_signed) {
        if (!str_starts(end, name) || strlen(end) != strlen(name) + 64)
            return "SignatureDoesNotMatch";
        memcpy(c->wanted, end + strlen(name), 65);
        digest_init(&c->digest, DIGEST_SHA256);
    }
    c->state = c->left ? DATA : c->has_trailer ? TRAILER : LAST;
    return c->left ? NULL : check_chunk(c);
}

static const char *trailer_line(struct chunked *c)
{
    if (c->line_len == 0) {
        c->state = DONE;
        return c->is_signed ? "SignatureDoesNotMatch" : NULL; /* its signature must come first */
    }
    char *colon = strchr(c->line, ':');
    if (!colon)
        return "MalformedTrailerError";
    *colon = '\0';
    const char *value = colon + 1 + strspn(colon + 1, " ");
    if (strcasecmp(c->line, "x-amz-trailer-signature") != 0) {
        pairs_add(&c->trailers, c->line, value);
        buf_printf(&c->trailer, "%s:%s\n", c->line, value);
        return NULL;
    }
    char hash[65], want[65];
    sigv4_sha256_hex(buf_str(&c->trailer), c->trailer.len, hash);
    sigv4_chunk(&c->seed, "TRAILER", c->previous, hash, want);
    c->is_signed = false; /* checked: the empty line may come */
    return sigv4_same(want, value) ? NULL : "SignatureDoesNotMatch";
}

static const char *line_ended(struct chunked *c)
{
    if (c->line_len && c->line[c->line_len - 1] == '\r')
        c->line_len--;
    c->line[c->line_len] = '\0';
    const char *wrong = NULL;
    if (c->state == HEAD)
        wrong = head_line(c);
    else if (c->state == TRAILER)
        wrong = trailer_line(c);
    else if (c->line_len == 0)
        c->state = c->state == LAST ? DONE : HEAD;
    else
        wrong = "InvalidRequest";
    c->line_len = 0;
    return wrong;
}

const char *chunked_add(struct chunked *c, const char *data, size_t n,
                        void (*sink)(void *cls, const char *data, size_t n), void *cls)
{
    const char *wrong = NULL;
    while (n && !wrong) {
        if (c->state == DONE)
            return "InvalidRequest";
        if (c->state == DATA) {
            size_t take = n < c->left ? n : (size_t)c->left;
            if (c->is_signed)
                digest_add(&c->digest, data, take);
            sink(cls, data, take);
            data += take;
            n -= take;
            c->left -= take;
            if (c->left == 0) {
                c->state = DATA_END;
                wrong = check_chunk(c);
            }
            continue;
        }
        char ch = *data++;
        n--;
        if (ch == '\n')
            wrong = line_ended(c);
        else if (c->line_len + 1 < sizeof c->line)
            c->line[c->line_len++] = ch;
        else
            wrong = "InvalidRequest";
    }
    return wrong;
}

bool chunked_complete(const struct chunked *c)
{
    return c->state == DONE;
}

void chunked_free(struct chunked *c)
{
    digest_free(&c->digest);
    buf_free(&c->trailer);
    pairs_free(&c->trailers);
}
