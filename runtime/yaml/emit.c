#include "yaml/emit.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "yaml/scalar.h"

struct yaml_emitter {
    yaml_emitter_t lib;
    struct buf *out;
    bool is_map[YAML_EMIT_DEPTH];
    size_t depth;
    const char *why; /* the first failure */
};

static int write_out(void *to, unsigned char *data, size_t len)
{
    return buf_add(to, data, len) == 0;
}

static void fail(struct yaml_emitter *e, const char *why)
{
    if (!e->why)
        e->why = why;
}

/* Takes the event; `made` is whether it could be initialised. */
static void emit(struct yaml_emitter *e, yaml_event_t *event, int made)
{
    if (!made)
        fail(e, "memory has run out");
    else if (e->why)
        yaml_event_delete(event);
    else if (!yaml_emitter_emit(&e->lib, event)) /* which frees the event, too, when it fails */
        fail(e, e->out->failed ? "it is too large" : e->lib.problem);
}

struct yaml_emitter *yaml_emit_open(struct buf *out)
{
    yaml_event_t event;
    struct yaml_emitter *e = calloc(1, sizeof *e);
    if (!e || !yaml_emitter_initialize(&e->lib)) {
        free(e);
        return NULL;
    }
    e->out = out;
    yaml_emitter_set_output(&e->lib, write_out, out);
    yaml_emitter_set_unicode(&e->lib, 1);
    yaml_emitter_set_width(&e->lib, -1);
    emit(e, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING));
    emit(e, &event, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1));
    return e;
}

static bool descend(struct yaml_emitter *e, bool is_map)
{
    if (e->depth == YAML_EMIT_DEPTH)
        fail(e, "it is nested too deep");
    else
        e->is_map[e->depth++] = is_map;
    return !e->why;
}

void yaml_emit_map(struct yaml_emitter *e)
{
    yaml_event_t event;
    if (descend(e, true))
        emit(e, &event,
             yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE));
}

void yaml_emit_list(struct yaml_emitter *e)
{
    yaml_event_t event;
    if (descend(e, false))
        emit(
            e, &event,
            yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE));
}

void yaml_emit_end(struct yaml_emitter *e)
{
    yaml_event_t event;
    if (e->depth == 0)
        return fail(e, "more ends than beginnings");
    bool is_map = e->is_map[--e->depth];
    emit(e, &event,
         is_map ? yaml_mapping_end_event_initialize(&event)
                : yaml_sequence_end_event_initialize(&event));
}

static void scalar(struct yaml_emitter *e, const char *s, size_t len, bool plain,
                   yaml_scalar_style_t style)
{
    yaml_event_t event;
    emit(e, &event,
         yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)s, (int)len, plain,
                                      !plain, style));
}

void yaml_emit_string(struct yaml_emitter *e, const char *s, size_t len)
{
    static const yaml_scalar_style_t styles[] = {
        [YAML_STYLE_PLAIN] = YAML_PLAIN_SCALAR_STYLE,
        [YAML_STYLE_LITERAL] = YAML_LITERAL_SCALAR_STYLE,
        [YAML_STYLE_QUOTED] = YAML_DOUBLE_QUOTED_SCALAR_STYLE,
    };
    if (len > INT_MAX)
        return fail(e, "it is too large");
    if (!yaml_is_text(s, len))
        return fail(e, "a string that is not UTF-8");
    enum yaml_style style = yaml_style_of(s, len);
    if (style == YAML_STYLE_LITERAL && e->depth == 0) /* its indentation would be misjudged */
        style = YAML_STYLE_QUOTED;
    scalar(e, s, len, style == YAML_STYLE_PLAIN, styles[style]);
}

void yaml_emit_plain(struct yaml_emitter *e, const char *text)
{
    scalar(e, text, strlen(text), true, YAML_PLAIN_SCALAR_STYLE);
}

int yaml_emit_close(struct yaml_emitter *e, struct nc_err *err)
{
    yaml_event_t event;
    if (e->depth)
        fail(e, "a map or list without end");
    emit(e, &event, yaml_document_end_event_initialize(&event, 1));
    emit(e, &event, yaml_stream_end_event_initialize(&event));
    const char *why = e->why;
    yaml_emitter_delete(&e->lib);
    free(e);
    return why ? nc_err_set(err, "BadYaml", "%s", why) : 0;
}
