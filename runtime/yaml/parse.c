#include "yaml/parse.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct yaml_reader {
    yaml_parser_t lib;
    yaml_event_t event; /* what the last item points into */
};

struct yaml_reader *yaml_parse_open(const char *text, size_t len)
{
    struct yaml_reader *r = calloc(1, sizeof *r);
    if (!r || !yaml_parser_initialize(&r->lib)) {
        free(r);
        return NULL;
    }
    yaml_parser_set_input_string(&r->lib, (const unsigned char *)text, len);
    return r;
}

void yaml_parse_close(struct yaml_reader *r)
{
    if (!r)
        return;
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->lib);
    free(r);
}

/* The type that a tag of YAML's own core gives; false for any other tag. */
static bool tagged(const char *tag, const char *s, size_t len, struct yaml_value *out)
{
    static const struct {
        const char *tag;
        enum yaml_type type;
    } known[] = {
        {YAML_NULL_TAG, YAML_TYPE_NULL},
        {YAML_BOOL_TAG, YAML_TYPE_BOOL},
        {YAML_INT_TAG, YAML_TYPE_INT},
        {YAML_FLOAT_TAG, YAML_TYPE_FLOAT},
    };
    *out = (struct yaml_value){.type = YAML_TYPE_STRING};
    if (strcmp(tag, YAML_STR_TAG) == 0 || strcmp(tag, "!") == 0)
        return true;
    *out = yaml_resolve(s, len);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(tag, known[i].tag) == 0)
            return out->type == known[i].type;
    return false;
}

static int refuse_tag(const char *tag, size_t line, struct nc_err *err)
{
    return nc_err_set(err, "BadYaml", "line %zu: no value for the tag %s", line, tag);
}

static int read_scalar(const yaml_event_t *event, struct yaml_item *item, struct nc_err *err)
{
    const char *tag = (const char *)event->data.scalar.tag;
    item->kind = YAML_ITEM_SCALAR;
    item->text = (const char *)event->data.scalar.value;
    item->len = event->data.scalar.length;
    item->anchor = (const char *)event->data.scalar.anchor;
    if (tag && *tag) {
        if (!tagged(tag, item->text, item->len, &item->value))
            return refuse_tag(tag, item->line, err);
    } else if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        item->value = yaml_resolve(item->text, item->len);
        item->is_merge = item->len == 2 && memcmp(item->text, "<<", 2) == 0;
    }
    return 1;
}

static int begin(struct yaml_item *item, enum yaml_item_kind kind, const yaml_char_t *anchor,
                 const yaml_char_t *tag, const char *own_tag, struct nc_err *err)
{
    item->kind = kind;
    item->anchor = (const char *)anchor;
    if (tag && strcmp((const char *)tag, "!") != 0 && strcmp((const char *)tag, own_tag) != 0)
        return refuse_tag((const char *)tag, item->line, err);
    return 1;
}

/* 1: an item; 0: the end; 2: nothing that matters; -1: refused. */
static int read_event(const yaml_event_t *event, struct yaml_item *item, struct nc_err *err)
{
    *item = (struct yaml_item){.line = event->start_mark.line + 1};
    switch (event->type) {
    case YAML_NO_EVENT:
    case YAML_STREAM_END_EVENT:
        return 0;
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 2;
    case YAML_DOCUMENT_START_EVENT:
        item->kind = YAML_ITEM_DOCUMENT;
        return 1;
    case YAML_MAPPING_START_EVENT:
        return begin(item, YAML_ITEM_MAP, event->data.mapping_start.anchor,
                     event->data.mapping_start.tag, YAML_MAP_TAG, err);
    case YAML_SEQUENCE_START_EVENT:
        return begin(item, YAML_ITEM_LIST, event->data.sequence_start.anchor,
                     event->data.sequence_start.tag, YAML_SEQ_TAG, err);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        item->kind = YAML_ITEM_END;
        return 1;
    case YAML_ALIAS_EVENT:
        item->kind = YAML_ITEM_ALIAS;
        item->anchor = (const char *)event->data.alias.anchor;
        return 1;
    case YAML_SCALAR_EVENT:
        return read_scalar(event, item, err);
    }
    return 0;
}

int yaml_parse_next(struct yaml_reader *r, struct yaml_item *item, struct nc_err *err)
{
    int rc;
    do {
        yaml_event_delete(&r->event);
        if (!yaml_parser_parse(&r->lib, &r->event)) {
            const char *problem = r->lib.problem ? r->lib.problem : "memory has run out";
            size_t line =
                r->lib.error == YAML_READER_ERROR ? r->lib.mark.line : r->lib.problem_mark.line;
            return nc_err_set(err, "BadYaml", "line %zu: %s", line + 1, problem);
        }
        rc = read_event(&r->event, item, err);
    } while (rc == 2);
    return rc;
}
