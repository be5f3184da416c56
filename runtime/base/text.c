#include "base/text.h"

#include <stdio.h>
#include <string.h>

void text_hex(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * len] = '\0';
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = text_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int text_unhex(const char *s, size_t digits, unsigned char *out)
{
    if (digits % 2)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        if (digit(s[i]) < 0)
            return -1;
    }
    for (size_t i = 0; i < digits; i += 2)
        out[i / 2] = (unsigned char)(digit(s[i]) << 4 | digit(s[i + 1]));
    return 0;
}

bool text_is_hex(const char *s, size_t digits)
{
    return strspn(s, "0123456789abcdef") == digits && s[digits] == '\0';
}

bool text_is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t text_trim(const char **s, size_t len)
{
    while (len && text_is_blank(**s)) {
        ++*s;
        len--;
    }
    while (len && text_is_blank((*s)[len - 1]))
        len--;
    return len;
}

bool text_has_control(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return true;
    }
    return false;
}

char text_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

int text_icmp(const char *a, const char *b)
{
    while (*a && text_lower(*a) == text_lower(*b)) {
        a++;
        b++;
    }
    return (unsigned char)text_lower(*a) - (unsigned char)text_lower(*b);
}

bool text_ieq(const char *a, const char *b)
{
    return text_icmp(a, b) == 0;
}

bool text_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool text_istarts(const char *s, const char *prefix)
{
    for (; *prefix; s++, prefix++) {
        if (text_lower(*s) != text_lower(*prefix))
            return false;
    }
    return true;
}

bool text_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

int text_take_u64(const char **s, uint64_t *out)
{
    uint64_t n = 0;
    const char *p = *s;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p - '0', &n))
            return -1;
    }
    if (p == *s)
        return -1;
    *s = p;
    *out = n;
    return 0;
}

int text_u64(const char *s, uint64_t *out)
{
    uint64_t n;
    if (text_take_u64(&s, &n) || *s)
        return -1;
    *out = n;
    return 0;
}

/* Days since 1970 and back: Howard Hinnant's civil calendar arithmetic, in which a year begins in
 * March so that the leap day is its last. */
static int64_t days_from_date(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = year / 400, yoe = year % 400;
    int64_t doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

void text_time_split(int64_t epoch, struct text_time *out)
{
    const int64_t last = 253402300799; /* 9999-12-31T23:59:59Z */
    epoch = epoch < 0 ? 0 : epoch > last ? last : epoch;
    int64_t days = epoch / 86400 + 719468, seconds = epoch % 86400;
    int64_t era = days / 146097, doe = days % 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), month = (5 * doy + 2) / 153;
    out->day = (int)(doy - (153 * month + 2) / 5 + 1);
    out->month = (int)(month < 10 ? month + 3 : month - 9);
    out->year = (int)(yoe + era * 400 + (out->month <= 2));
    out->hour = (int)(seconds / 3600);
    out->minute = (int)(seconds / 60 % 60);
    out->second = (int)(seconds % 60);
}

int text_time_join(const struct text_time *t, int64_t *epoch)
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (t->year < 1970 || t->year > 9999 || t->month < 1 || t->month > 12)
        return -1;
    bool leap = t->year % 4 == 0 && (t->year % 100 != 0 || t->year % 400 == 0);
    int length = lengths[t->month - 1] + (t->month == 2 && leap);
    /* 60 is a leap second, which the second after it stands in for. */
    if (t->day < 1 || t->day > length || t->hour < 0 || t->hour > 23 || t->minute < 0 ||
        t->minute > 59 || t->second < 0 || t->second > 60)
        return -1;
    *epoch = days_from_date(t->year, t->month, t->day) * 86400 + t->hour * 3600 + t->minute * 60 +
             t->second;
    return 0;
}

static const char day_names[7][10] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
static const char month_names[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/* Reads a date by a pattern: Y o D h m s take digits (as many as the letter is repeated; o is the
 * month, D may begin with a blank), N a month's name; every other character stands for itself.
 * Returns where it stopped in s, or NULL. */
static const char *scan(const char *s, const char *pattern, struct text_time *t)
{
    while (*pattern) {
        char kind = *pattern;
        int *field = kind == 'Y'   ? &t->year
                     : kind == 'o' ? &t->month
                     : kind == 'D' ? &t->day
                     : kind == 'h' ? &t->hour
                     : kind == 'm' ? &t->minute
                     : kind == 's' ? &t->second
                                   : NULL;
        if (field) {
            int n = 0;
            for (; *pattern == kind; pattern++, s++) {
                bool pad = kind == 'D' && n == 0 && *s == ' ' && pattern[1] == kind;
                if (!pad && (*s < '0' || *s > '9'))
                    return NULL;
                n = pad ? 0 : n * 10 + (*s - '0');
            }
            *field = n;
        } else if (kind == 'N') {
            t->month = 0;
            for (int i = 0; i < 12; i++) {
                if (strncmp(s, month_names[i], 3) == 0)
                    t->month = i + 1;
            }
            if (!t->month)
                return NULL;
            s += 3;
            pattern++;
        } else if (*s++ != *pattern++) {
            return NULL;
        }
    }
    return s;
}

int text_http_date(const char *s, int64_t *epoch)
{
    static const char *const forms[] = {
        ", DD N YYYY hh:mm:ss GMT", /* Sun, 06 Nov 1994 08:49:37 GMT */
        ", DD-N-YY hh:mm:ss GMT",   /* Sunday, 06-Nov-94 08:49:37 GMT */
        " N DD hh:mm:ss YYYY",      /* Sun Nov  6 08:49:37 1994 */
    };
    size_t letters = 0;
    for (int i = 0; i < 7; i++) {
        size_t whole = strlen(day_names[i]);
        if (strncmp(s, day_names[i], 3) == 0)
            letters = strncmp(s, day_names[i], whole) == 0 ? whole : 3;
    }
    if (!letters)
        return -1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct text_time t = {0};
        const char *end = scan(s + letters, forms[i], &t);
        if (!end || *end)
            continue;
        if (i == 1)
            t.year += t.year < 70 ? 2000 : 1900;
        return text_time_join(&t, epoch);
    }
    return -1;
}

void text_http_date_format(int64_t epoch, char out[TEXT_HTTP_DATE_SIZE])
{
    struct text_time t;
    text_time_split(epoch, &t);
    int weekday = (int)((days_from_date(t.year, t.month, t.day) + 4) % 7);
    char line[80];
    snprintf(line, sizeof line, "%.3s, %02d %s %04d %02d:%02d:%02d GMT", day_names[weekday], t.day,
             month_names[t.month - 1], t.year, t.hour, t.minute, t.second);
    memcpy(out, line, TEXT_HTTP_DATE_SIZE);
}

int text_iso_date(const char *s, int64_t *epoch)
{
    struct text_time t = {0};
    s = scan(s, "YYYY-oo-DDThh:mm:ss", &t);
    if (!s)
        return -1;
    if (*s == '.') {
        size_t fraction = strspn(s + 1, "0123456789");
        if (!fraction)
            return -1;
        s += 1 + fraction;
    }
    int64_t offset = 0, local;
    if (*s == '+' || *s == '-') {
        struct text_time zone = {0};
        const char *end = scan(s + 1, "hh:mm", &zone);
        if (!end || zone.hour > 23 || zone.minute > 59)
            return -1;
        offset = (zone.hour * 3600 + zone.minute * 60) * (*s == '-' ? -1 : 1);
        s = end;
    } else if (*s++ != 'Z') {
        return -1;
    }
    if (*s || text_time_join(&t, &local))
        return -1;
    *epoch = local - offset;
    return 0;
}

void text_amz_date(int64_t epoch, char out[TEXT_AMZ_DATE_SIZE])
{
    struct text_time t;
    text_time_split(epoch, &t);
    const int fields[] = {t.year / 100, t.year % 100, t.month, t.day, t.hour, t.minute, t.second};
    char *p = out;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (i == 4)
            *p++ = 'T';
        *p++ = (char)('0' + fields[i] / 10);
        *p++ = (char)('0' + fields[i] % 10);
    }
    *p++ = 'Z';
    *p = '\0';
}

/* The code point at *s, moving past it; a byte that begins none counts as one by itself. */
static unsigned next_char(const char **s)
{
    const unsigned char *p = (const unsigned char *)*s;
    int more = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : p[0] >= 0xc2 ? 1 : 0;
    unsigned c = more ? p[0] & (0x3fu >> more) : p[0];
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            more = 0;
            c = p[0];
            break;
        }
        c = c << 6 | (p[i] & 0x3f);
    }
    *s += 1 + more;
    return c;
}

/* The end of the set that begins after '[', or NULL where it is never closed. */
static const char *set_end(const char *set)
{
    const char *p = set + (*set == '!');
    return *p ? strchr(p + 1, ']') : NULL; /* a first ] is a member */
}

static bool in_set(const char *set, const char *end, unsigned c)
{
    bool negate = *set == '!', found = false;
    const char *p = set + negate;
    while (p < end) {
        unsigned low = next_char(&p), high = low;
        if (p + 1 < end && *p == '-') {
            p++;
            high = next_char(&p);
        }
        if (c >= low && c <= high)
            found = true;
    }
    return found != negate;
}

/* One pattern element against one character; moves *pattern and *s on a match. */
static bool match_one(const char **pattern, const char **s)
{
    const char *p = *pattern, *rest = *s;
    unsigned c = next_char(&rest);
    const char *end = *p == '[' ? set_end(p + 1) : NULL;
    bool ok;
    if (end) {
        ok = in_set(p + 1, end, c);
        p = end + 1;
    } else if (*p == '?') {
        ok = true;
        p++;
    } else {
        ok = next_char(&p) == c;
    }
    if (ok) {
        *pattern = p;
        *s = rest;
    }
    return ok;
}

bool text_glob(const char *pattern, const char *s)
{
    size_t len = strlen(pattern);
    bool below = len && pattern[len - 1] == '/';
    /* Going back to the last * is enough: an earlier one could only take less. */
    const char *star = NULL, *resume = NULL;
    while (*s) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = s;
        } else if (below && !*pattern) {
            return true;
        } else if (!*pattern || !match_one(&pattern, &s)) {
            if (!star)
                return false;
            pattern = star;
            next_char(&resume);
            s = resume;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}
