#include "transfer/climb.h"

enum { LOOK_MS = 1000, REST_MS = 30 * 1000, AFTER_REFUSAL_MS = 5 * 1000 };

void climb_init(struct climb *c, unsigned level, unsigned least, unsigned most)
{
    *c = (struct climb){.level = level, .least = least, .most = most};
}

void climb_full(struct climb *c)
{
    c->was_full = true;
}

static unsigned within(const struct climb *c, unsigned level)
{
    return level < c->least ? c->least : level > c->most ? c->most : level;
}

static void go_to(struct climb *c, unsigned level, uint64_t rate)
{
    c->before = c->level;
    c->rate_before = rate;
    c->level = within(c, level);
}

static void give_way(struct climb *c, uint64_t now_ms)
{
    c->level = within(c, c->level - c->level / 4);
    c->before = 0;
    c->rest_ms = now_ms + AFTER_REFUSAL_MS;
}

static void judge(struct climb *c, uint64_t now_ms, uint64_t rate)
{
    if (c->before && rate < c->rate_before + c->rate_before / 20) {
        c->level = c->before;
        c->before = 0;
        c->rest_ms = now_ms + REST_MS;
    } else if (c->was_full && now_ms >= c->rest_ms && c->level < c->most) {
        go_to(c, c->level + c->level / 2 + 1, rate);
    } else {
        c->before = 0;
    }
}

void climb_look(struct climb *c, uint64_t now_ms, uint64_t done, uint64_t refusals)
{
    if (!c->since_ms) {
        c->since_ms = now_ms;
        c->done = done;
        c->refusals = refusals;
        return;
    }
    uint64_t passed = now_ms - c->since_ms;
    if (passed < LOOK_MS)
        return;
    uint64_t moved = done > c->done ? done - c->done : 0; /* failed attempts are taken back */
    if (refusals > c->refusals)
        give_way(c, now_ms);
    else
        judge(c, now_ms, moved * 1000 / passed);
    c->since_ms = now_ms;
    c->done = done;
    c->refusals = refusals;
    c->was_full = false;
}
