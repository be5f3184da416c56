/* Small text helpers that do not depend on the locale: hex, blanks, case, numbers, dates, globs.
 * Pure functions, any thread, no allocation. Parsers return 0, or -1 and leave *out alone. */
#ifndef NC_BASE_TEXT_H
#define NC_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lower-case hex of len bytes and a NUL: out holds 2 * len + 1. */
void text_hex(const void *data, size_t len, char *out);

/* Exactly 2 * len hex digits, either case, into out. */
int text_unhex(const char *s, size_t digits, unsigned char *out);

/* True for exactly `digits` lower-case hex digits and nothing else, as commits and digests are. */
bool text_is_hex(const char *s, size_t digits);

bool text_is_blank(char c); /* space, \t \n \v \f \r */

/* Moves *s past leading blanks and returns the length without trailing ones. */
size_t text_trim(const char **s, size_t len);

/* True when a byte below 0x20 or 0x7f is among the len. */
bool text_has_control(const char *s, size_t len);

bool text_ieq(const char *a, const char *b); /* equal but for ASCII case */
int text_icmp(const char *a, const char *b); /* ordered by lower-case ASCII */
bool text_starts(const char *s, const char *prefix);
bool text_istarts(const char *s, const char *prefix); /* ... but for ASCII case */
bool text_ends(const char *s, const char *suffix);
char text_lower(char c);

/* Decimal digits only: no sign, no blank, no overflow, not empty. */
int text_u64(const char *s, uint64_t *out);

/* The decimal digits at *s, which moves behind them; -1 where there is none or it is too large. */
int text_take_u64(const char **s, uint64_t *out);

/* Calendar time, UTC, years 1970 to 9999. Its own arithmetic: libc's takes a lock and may read time
 * zone files. */
struct text_time {
    int year, month, day, hour, minute, second; /* month and day from 1 */
};

void text_time_split(int64_t epoch, struct text_time *out);
int text_time_join(const struct text_time *t, int64_t *epoch); /* -1: no such date */

#define TEXT_HTTP_DATE_SIZE 30
#define TEXT_AMZ_DATE_SIZE 17

/* RFC 7231 7.1.1.1: the preferred form and the two obsolete ones. */
int text_http_date(const char *s, int64_t *epoch);
void text_http_date_format(int64_t epoch, char out[TEXT_HTTP_DATE_SIZE]);

/* 2026-11-29T10:00:00.000Z; the fraction (dropped) may be absent, Z may be an offset +hh:mm. */
int text_iso_date(const char *s, int64_t *epoch);

/* 20150830T123600Z, the form Signature V4 uses. */
void text_amz_date(int64_t epoch, char out[TEXT_AMZ_DATE_SIZE]);

/* Python's fnmatch, as the hub's allow and ignore patterns use it: * (crosses /), ?, [abc], [a-z],
 * [!x]; no escapes; case matters; an unclosed [ is itself. A pattern that ends in / means all that
 * is below. Takes time of the order of both lengths multiplied. */
bool text_glob(const char *pattern, const char *s);

#endif
