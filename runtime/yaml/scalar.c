#include "yaml/scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || is_upper(c);
}

static bool is_word(const char *s, size_t len, const char *word)
{
    if (strlen(word) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (text_lower(s[i]) != word[i])
            return false;
    return true;
}

/* In any case some reader takes one of these for something else. */
static bool is_reserved(const char *s, size_t len)
{
    static const char *const words[] = {"y",    "n",     "yes",  "no",  "on", "off",
                                        "true", "false", "null", "nan", "inf"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(s, len, words[i]))
            return true;
    return false;
}

/* 512Mi, 64Gi: no reader's number. Others (500m, 1e3, 8) might be some day or are. */
static bool is_quantity(const char *s, size_t len)
{
    if (len < 3 || s[0] < '1' || s[0] > '9' || s[len - 1] != 'i' || !strchr("KMGTP", s[len - 2]))
        return false;
    for (size_t i = 1; i < len - 2; i++)
        if (!is_digit(s[i]))
            return false;
    return true;
}

/* A letter, `/` or `_`, then what has no meaning to YAML there: one blank between words, no `: `,
 * no ` #`, no blank or colon at the end. */
static bool is_plain(const char *s, size_t len)
{
    if (is_quantity(s, len))
        return true;
    if (len == 0 || !(is_letter(s[0]) || s[0] == '/' || s[0] == '_'))
        return false;
    for (size_t i = 1; i < len; i++) {
        bool last = i + 1 == len;
        if (s[i] == ' ' || s[i] == ':') {
            if (last || !(is_letter(s[i + 1]) || is_digit(s[i + 1]) || s[i + 1] == '/'))
                return false;
        } else if (s[i] == '\0' ||
                   !(is_letter(s[i]) || is_digit(s[i]) || strchr("._/@+=-%$()", s[i]))) {
            return false;
        }
    }
    return !is_reserved(s, len);
}

/* The code point at s and the bytes it takes; 0 bytes where that is no UTF-8. */
static size_t code_point(const unsigned char *s, size_t len, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n == 0 || n > len || s[0] > 0xf4)
        return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0xffU >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3fU);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *out = c;
    return n;
}

bool yaml_is_text(const char *s, size_t len)
{
    uint32_t c;
    for (size_t i = 0, n; i < len; i += n)
        if ((n = code_point((const unsigned char *)s + i, len - i, &c)) == 0)
            return false;
    return true;
}

/* Breaks lines, is invisible, or is not printable by YAML's own rules. */
static bool is_odd(uint32_t c)
{
    return (c < 0x20 && c != '\n') || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
           c == 0xfeff || c >= 0xfffe;
}

/* Text of more than one line that a literal block keeps: no blank or line break at its beginning
 * (some readers misjudge the indentation), none before a line break, nothing odd. */
static bool is_literal(const char *s, size_t len)
{
    uint32_t c = 0;
    if (!memchr(s, '\n', len) || s[0] == ' ' || s[0] == '\n' || s[len - 1] == ' ')
        return false;
    for (size_t i = 0, n; i < len; i += n) {
        bool blank = c == ' ';
        if ((n = code_point((const unsigned char *)s + i, len - i, &c)) == 0 || is_odd(c))
            return false;
        if (blank && c == '\n')
            return false;
    }
    return true;
}

enum yaml_style yaml_style_of(const char *s, size_t len)
{
    if (is_plain(s, len))
        return YAML_STYLE_PLAIN;
    return is_literal(s, len) ? YAML_STYLE_LITERAL : YAML_STYLE_QUOTED;
}

/* ---- reading ---- */

static size_t digits(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && is_digit(s[n]))
        n++;
    return n;
}

/* A decimal number without leading zeros, which 1.1 would take for octal. */
static bool is_int(const char *s, size_t len)
{
    size_t sign = len > 0 && (s[0] == '-' || s[0] == '+');
    size_t n = digits(s + sign, len - sign);
    return n > 0 && sign + n == len && (n == 1 || s[sign] != '0');
}

/* Digits, a point with digits on both sides, and an exponent with its sign: what both versions read
 * as a number. */
static bool is_float(const char *s, size_t len)
{
    size_t i = len > 0 && (s[0] == '-' || s[0] == '+');
    size_t whole = digits(s + i, len - i);
    if (whole == 0 || (whole > 1 && s[i] == '0'))
        return false;
    i += whole;
    if (i == len || s[i] != '.')
        return false;
    size_t fraction = digits(s + i + 1, len - i - 1);
    if (fraction == 0)
        return false;
    i += 1 + fraction;
    if (i == len)
        return true;
    if (text_lower(s[i]) != 'e' || i + 1 == len || (s[i + 1] != '-' && s[i + 1] != '+'))
        return false;
    size_t exponent = digits(s + i + 2, len - i - 2);
    return exponent > 0 && i + 2 + exponent == len;
}

/* `word` as it is, with a capital, or in capitals: null, Null, NULL, not nULL; .inf likewise. */
static bool is_cased(const char *s, size_t len, const char *word)
{
    if (!is_word(s, len, word))
        return false;
    size_t first = word[0] == '.';
    bool upper = is_upper(s[len - 1]);
    for (size_t i = first + 1; i < len; i++)
        if (is_upper(s[i]) != upper)
            return false;
    return !upper || is_upper(s[first]);
}

static struct yaml_value read_number(const char *s, size_t len)
{
    char text[400]; /* longer ones keep no more digits than a double has */
    size_t n = len < sizeof text - 1 ? len : sizeof text - 1;
    memcpy(text, s, n);
    text[n] = '\0';
    uint64_t magnitude;
    bool negative = text[0] == '-';
    const char *start = text + (negative || text[0] == '+');
    if (is_int(s, len) && n == len && text_u64(start, &magnitude) == 0 && magnitude <= INT64_MAX)
        return (struct yaml_value){.type = YAML_TYPE_INT,
                                   .integer = negative ? -(int64_t)magnitude : (int64_t)magnitude};
    return (struct yaml_value){.type = YAML_TYPE_FLOAT, .number = strtod(text, NULL)};
}

struct yaml_value yaml_resolve(const char *s, size_t len)
{
    if (len == 0 || is_word(s, len, "~") || is_cased(s, len, "null"))
        return (struct yaml_value){.type = YAML_TYPE_NULL};
    if (is_cased(s, len, "true") || is_cased(s, len, "false"))
        return (struct yaml_value){.type = YAML_TYPE_BOOL, .truth = text_lower(s[0]) == 't'};
    if (is_cased(s, len, ".nan"))
        return (struct yaml_value){.type = YAML_TYPE_FLOAT, .number = NAN};
    size_t sign = s[0] == '-' || s[0] == '+';
    if (is_cased(s + sign, len - sign, ".inf"))
        return (struct yaml_value){.type = YAML_TYPE_FLOAT,
                                   .number = s[0] == '-' ? -INFINITY : INFINITY};
    if (is_int(s, len) || (is_float(s, len) && len < 400))
        return read_number(s, len);
    return (struct yaml_value){.type = YAML_TYPE_STRING};
}
