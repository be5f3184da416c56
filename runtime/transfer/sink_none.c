#include "transfer/ends.h"

#include <stdlib.h>

static enum op file_call(struct sink *self, struct file *f, struct nc_err *err)
{
    (void)self;
    (void)f;
    (void)err;
    return OP_OVER;
}

static enum op store(struct sink *self, struct part *part, struct nc_err *err)
{
    (void)self;
    (void)part;
    (void)err;
    return OP_OVER;
}

static void cancel(struct sink *self, struct file *f, struct part *part)
{
    (void)self;
    (void)f;
    (void)part;
}

static void release(struct sink *self, struct part *part)
{
    (void)self;
    (void)part;
}

static void forget(struct sink *self, struct file *f, bool keep)
{
    (void)self;
    (void)keep;
    (void)f;
}

static void free_sink(struct sink *self)
{
    free(self);
}

struct sink *sink_none_new(void)
{
    struct sink *s = malloc(sizeof *s);
    if (s)
        *s = (struct sink){
            .local = true,
            .open = file_call,
            .store = store,
            .finish = file_call,
            .leave = file_call,
            .cancel = cancel,
            .release = release,
            .forget = forget,
            .free = free_sink,
        };
    return s;
}
