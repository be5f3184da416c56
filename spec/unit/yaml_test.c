#include "unit.h"

#include "yaml/emit.h"
#include "yaml/parse.h"
#include "yaml/scalar.h"

static enum yaml_style style(const char *s)
{
    return yaml_style_of(s, strlen(s));
}

static void styles(void)
{
    static const char *const plain[] = {"Job", "a b",  "a:b", "/x",
                                        "x=1", "64Gi", "Gi",  "https://a/b"};
    static const char *const quoted[] = {"",     "y",    "No",   "~",       "null",  "8",  "64G",
                                         "0x1F", "1e3",  "a:",   "a: b",    "- ",    "*a", " a",
                                         "a ",   "a #b", "a\t",  "\na",     "a \nb", "{",  "=",
                                         "<<",   "0Gi",  "a\n ", "\xc3\xbc"};
    static const char *const literal[] = {"a\n",      "a\nb",       "a\n\n",
                                          "a\n  b\n", "\xc3\xbc\n", "---\n"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        CHECK(style(plain[i]) == YAML_STYLE_PLAIN, plain[i]);
    for (size_t i = 0; i < sizeof quoted / sizeof *quoted; i++)
        CHECK(style(quoted[i]) == YAML_STYLE_QUOTED, "quoted");
    for (size_t i = 0; i < sizeof literal / sizeof *literal; i++)
        CHECK(style(literal[i]) == YAML_STYLE_LITERAL, "a literal block");
    CHECK(yaml_style_of("a\0b", 3) == YAML_STYLE_QUOTED, "a NUL is quoted");
}

static enum yaml_type type(const char *s)
{
    return yaml_resolve(s, strlen(s)).type;
}

static void types(void)
{
    CHECK(type("") == YAML_TYPE_NULL && type("~") == YAML_TYPE_NULL, "null");
    CHECK(type("Null") == YAML_TYPE_NULL && type("nULL") == YAML_TYPE_STRING, "null by its case");
    CHECK(yaml_resolve("TRUE", 4).truth && !yaml_resolve("false", 5).truth, "booleans");
    CHECK(type("yes") == YAML_TYPE_STRING && type("on") == YAML_TYPE_STRING, "words of 1.1");
    CHECK(yaml_resolve("-17", 3).integer == -17, "an integer");
    CHECK(yaml_resolve("9223372036854775807", 19).integer == INT64_MAX, "the largest integer");
    CHECK(type("9223372036854775808") == YAML_TYPE_FLOAT, "a larger one is a float");
    CHECK(type("0755") == YAML_TYPE_STRING && type("1_0") == YAML_TYPE_STRING, "numbers of 1.1");
    CHECK(type("1e3") == YAML_TYPE_STRING && type("0x1f") == YAML_TYPE_STRING, "numbers of 1.2");
    CHECK(yaml_resolve("1.5e+3", 6).number == 1500.0, "a float");
    CHECK(type(".INF") == YAML_TYPE_FLOAT && type(".iNF") == YAML_TYPE_STRING, "infinity");
    CHECK(type("-") == YAML_TYPE_STRING && type("+") == YAML_TYPE_STRING, "signs alone");
}

static void text(void)
{
    CHECK(yaml_is_text("\xf0\x9f\x98\x80", 4), "four bytes");
    CHECK(!yaml_is_text("\xc0\x80", 2), "an overlong form");
    CHECK(!yaml_is_text("\xed\xa0\x80", 3), "half of a surrogate pair");
    CHECK(!yaml_is_text("\xe2\x82", 2), "a code point that is cut");
}

/* What emit makes of a map with one key, or its error. */
static const char *emitted(const char *value, size_t len)
{
    static char out[1024];
    struct nc_err err = {0};
    struct buf b;
    buf_init(&b, sizeof out - 1);
    struct yaml_emitter *e = yaml_emit_open(&b);
    yaml_emit_map(e);
    yaml_emit_string(e, "k", 1);
    yaml_emit_string(e, value, len);
    yaml_emit_end(e);
    if (yaml_emit_close(e, &err))
        snprintf(out, sizeof out, "%s", err.message);
    else
        snprintf(out, sizeof out, "%s", buf_str(&b));
    buf_free(&b);
    return out;
}

static void emits(void)
{
    static char large[2048];
    struct nc_err err = {0};
    struct buf b;
    memset(large, 'a', sizeof large);
    CHECK_STR(emitted("on", 2), "k: \"on\"\n", "a word");
    CHECK_STR(emitted("a\nb\n", 4), "k: |\n  a\n  b\n", "lines");
    CHECK_STR(emitted("\xff", 1), "a string that is not UTF-8", "bytes");
    CHECK_STR(emitted(large, sizeof large), "it is too large", "more than the buffer takes");

    buf_init(&b, 1 << 20);
    struct yaml_emitter *e = yaml_emit_open(&b);
    for (int i = 0; i <= YAML_EMIT_DEPTH; i++)
        yaml_emit_list(e);
    CHECK(yaml_emit_close(e, &err) < 0, "a depth that is too much");
    CHECK_STR(err.message, "it is nested too deep", "and why");
    e = yaml_emit_open(&b);
    yaml_emit_end(e);
    CHECK(yaml_emit_close(e, &err) < 0, "an end without a beginning");
    buf_free(&b);
}

static void parses(void)
{
    static const char source[] = "a: &x [1, 'on']\nb: *x\n";
    static const enum yaml_item_kind want[] = {
        YAML_ITEM_DOCUMENT, YAML_ITEM_MAP, YAML_ITEM_SCALAR, YAML_ITEM_LIST,  YAML_ITEM_SCALAR,
        YAML_ITEM_SCALAR,   YAML_ITEM_END, YAML_ITEM_SCALAR, YAML_ITEM_ALIAS, YAML_ITEM_END,
    };
    struct nc_err err = {0};
    struct yaml_item item;
    struct yaml_reader *r = yaml_parse_open(source, sizeof source - 1);
    size_t n = 0;
    bool as_wanted = true;
    while (yaml_parse_next(r, &item, &err) > 0) {
        as_wanted = as_wanted && n < sizeof want / sizeof *want && item.kind == want[n];
        n++;
    }
    CHECK(as_wanted && n == sizeof want / sizeof *want, "items in their order");
    yaml_parse_close(r);
    yaml_parse_close(NULL);

    r = yaml_parse_open("a: 1\nb: [\n", 10);
    int rc;
    while ((rc = yaml_parse_next(r, &item, &err)) > 0)
        ;
    CHECK(rc < 0, "a list without end");
    CHECK(strncmp(err.message, "line 3: ", 8) == 0, "is told with its line");
    yaml_parse_close(r);
}

int main(void)
{
    styles();
    types();
    text();
    emits();
    parses();
    return unit_done();
}
