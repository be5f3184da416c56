/* Scalars of YAML: how a string must be written so that every reader gets the string back, and what
 * a plain (unquoted) scalar means. Pure functions, any thread, no allocation, no locale.
 *
 * Readers disagree: YAML 1.1 (PyYAML, and what kubectl reads with) takes `on`, `y`, `0755`, `1_000`
 * and `12:30` for booleans and numbers, YAML 1.2 (https://yaml.org/spec/1.2.2/, 10.3.2) does not.
 * So what is written plain is a string to both, and what only one of them calls a number or a
 * boolean is read as a string. */
#ifndef NC_YAML_SCALAR_H
#define NC_YAML_SCALAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum yaml_style {
    YAML_STYLE_PLAIN, /* as it is: words, paths, addresses, Kubernetes' binary quantities (64Gi) */
    YAML_STYLE_LITERAL, /* a block after `|`: lines of text that a block gives back byte for byte */
    YAML_STYLE_QUOTED,  /* in double quotes, the rest escaped */
};

/* How to write this text (UTF-8) as a string. */
enum yaml_style yaml_style_of(const char *s, size_t len);

enum yaml_type {
    YAML_TYPE_STRING,
    YAML_TYPE_NULL,
    YAML_TYPE_BOOL,
    YAML_TYPE_INT,
    YAML_TYPE_FLOAT,
};

struct yaml_value {
    enum yaml_type type;
    bool truth;      /* YAML_TYPE_BOOL */
    int64_t integer; /* YAML_TYPE_INT */
    double number;   /* YAML_TYPE_FLOAT; an integer that int64_t can't hold is one too */
};

/* What a plain scalar is, where 1.1 and 1.2 agree; a string otherwise. */
struct yaml_value yaml_resolve(const char *s, size_t len);

/* True for UTF-8 of code points that YAML can hold, NUL and control characters among them. */
bool yaml_is_text(const char *s, size_t len);

#endif
