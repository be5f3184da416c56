/* Signing whatever a key, a query or a header may hold: lines of the input are the request's
 * pieces. */
#include <stdlib.h>
#include <string.h>

#include "s3/sign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

enum { PIECES = 80, FIXED = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct signer signer; /* kept, as a client keeps it: the day's key is cached */
    if (!signer.text.max)
        signer_init(&signer);
    char *text = strndup((const char *)data, size), *pieces[PIECES], *rest = NULL;
    size_t count = 0;
    for (char *p = text; count < PIECES; p = NULL) {
        if (!(p = strtok_r(p, "\n", &rest)))
            break;
        pieces[count++] = p;
    }
    for (size_t i = count; i < PIECES; i++)
        pieces[i] = (char *)"";
    struct sign_keys keys = {pieces[0], pieces[1], pieces[2], pieces[3],
                             size % 2 ? "s3" : pieces[4]};
    struct sign_header headers[(PIECES - FIXED) / 2];
    size_t header_count = count > FIXED ? (count - FIXED) / 2 : 0;
    for (size_t i = 0; i < header_count; i++)
        headers[i] = (struct sign_header){pieces[FIXED + 2 * i], pieces[FIXED + 2 * i + 1]};
    struct sign_request request = {.method = "GET",
                                   .host = pieces[5],
                                   .path = pieces[6],
                                   .query = pieces[7],
                                   .headers = headers,
                                   .header_count = header_count,
                                   .payload_hash = SIGN_UNSIGNED,
                                   .time = (int64_t)size * 1000003};
    char date[TEXT_AMZ_DATE_SIZE], authorization[SIGN_AUTHORIZATION_MAX];
    struct nc_err err = {0};
    if (sign_v4(&signer, &keys, &request, date, authorization, &err) == 0) {
        const char *signature = strstr(authorization, ", Signature=");
        check(signature && strlen(date) == 16);
    } else {
        check(*err.code);
    }
    struct buf query;
    buf_init(&query, 1 << 16);
    sign_query(&signer, &keys, &request, 60, &query, &err);
    buf_free(&query);
    free(text);
    return 0;
}
