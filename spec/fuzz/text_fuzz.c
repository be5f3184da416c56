/* Dates out of headers and listings, and the hub's patterns. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void dates(const char *s)
{
    int64_t epoch, again;
    char out[TEXT_HTTP_DATE_SIZE];
    if (text_http_date(s, &epoch) == 0) {
        text_http_date_format(epoch, out);
        check(text_http_date(out, &again) == 0 && again == epoch);
    }
    text_iso_date(s, &epoch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size < 4096 ? size : 4096);
    dates(text);
    uint64_t n;
    text_u64(text, &n);
    check(text_glob("*", text));
    char *rest = strchr(text, '\n'); /* a pattern, and a path below it */
    if (rest) {
        *rest++ = '\0';
        text_glob(text, rest);
    }
    if (!strpbrk(text, "[*?") && !text_ends(text, "/"))
        check(text_glob(text, text));
    free(text);
    return 0;
}
