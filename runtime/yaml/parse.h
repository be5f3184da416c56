/* Reads YAML through libyaml as a flat series of items.
 *
 *     struct yaml_reader *r = yaml_parse_open(text, len);
 *     struct yaml_item item;
 *     while ((rc = yaml_parse_next(r, &item, &err)) > 0) ...
 *     yaml_parse_close(r);
 *
 * One owner, any thread. The text is borrowed until close; what an item points to, until the next
 * call. */
#ifndef NC_YAML_PARSE_H
#define NC_YAML_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "yaml/scalar.h"

enum yaml_item_kind {
    YAML_ITEM_DOCUMENT, /* one begins */
    YAML_ITEM_MAP,
    YAML_ITEM_LIST,
    YAML_ITEM_END, /* of the innermost map or list */
    YAML_ITEM_SCALAR,
    YAML_ITEM_ALIAS,
};

struct yaml_item {
    enum yaml_item_kind kind;
    const char *text; /* SCALAR: as it was written, unescaped */
    size_t len;
    struct yaml_value value; /* SCALAR: what it is by tag, quotes or form */
    bool is_merge;           /* SCALAR: `<<` without quotes, which merges maps as a key of 1.1 */
    const char *anchor;      /* MAP, LIST, SCALAR: its name, or NULL; ALIAS: whose it is */
    size_t line;             /* from 1 */
};

struct yaml_reader;

struct yaml_reader *yaml_parse_open(const char *text, size_t len); /* NULL: no memory */

/* 1 with an item, 0 at the end, -1 with code "BadYaml" and the line in the message. */
int yaml_parse_next(struct yaml_reader *r, struct yaml_item *item, struct nc_err *err);

void yaml_parse_close(struct yaml_reader *r); /* accepts NULL */

#endif
