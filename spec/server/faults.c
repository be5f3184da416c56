#include "faults.h"

#include "text.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const side_names[SIDES] = {"s3", "hub", "cdn", "admin"};

enum argument { NO_ARGUMENT, NUMBER, NUMBER_OR_ZERO, SIGNED, WORD };

#define FIELD(name) offsetof(struct fault, name), sizeof(((struct fault *)0)->name)

static const struct action {
    const char *name;
    enum argument argument;
    size_t offset, size;
    const char *help;
} fault_actions[] = {
    {"status", WORD, FIELD(status), "503[:Code[:SECONDS]]  answer this, with Retry-After"},
    {"ok-error", WORD, FIELD(ok_error),
     "CODE  200 with an <Error> body after blanks; nothing done"},
    {"empty-ok", NO_ARGUMENT, FIELD(empty_ok), "200 with an empty body; nothing done"},
    {"half-xml", NO_ARGUMENT, FIELD(half_xml),
     "the work is done, half of the answer's body is sent"},
    {"cut", NUMBER, FIELD(cut),
     "BYTES  close after that much of the body, Content-Length said more"},
    {"cut-chunked", NUMBER, FIELD(cut_chunked), "BYTES  the same with a chunked body"},
    {"stall", NUMBER, FIELD(stall), "BYTES  send (or, of an upload, read) that much, then nothing"},
    {"accept-stall", NO_ARGUMENT, FIELD(accept_stall), "read the request, never answer"},
    {"slow", NUMBER, FIELD(slow), "BYTES_PER_SECOND  of the body, either way"},
    {"reset", NUMBER_OR_ZERO, FIELD(reset), "[BYTES]  TCP reset after that much of the body"},
    {"wrong-range", NO_ARGUMENT, FIELD(wrong_range), "206 with a Content-Range one byte off"},
    {"etag-change", NO_ARGUMENT, FIELD(etag_change), "another ETag than the object's"},
    {"flip", NUMBER, FIELD(flip), "OFFSET  one bit flipped at that offset of the file"},
    {"drop-part", NO_ARGUMENT, FIELD(drop_part), "answer 200 to UploadPart but keep nothing"},
    {"ignore-range", NO_ARGUMENT, FIELD(ignore_range), "200 with everything"},
    {"expire", NO_ARGUMENT, FIELD(expire), "the signed URL counts as expired: 403"},
    {"login-page", NO_ARGUMENT, FIELD(login_page), "200 text/html in place of the file"},
    {"pointer", NO_ARGUMENT, FIELD(pointer), "an LFS pointer in place of the file"},
    {"early-close", NO_ARGUMENT, FIELD(early_close), "403 and a close before the body is read"},
    {"timeout-400", NO_ARGUMENT, FIELD(timeout_400), "400 RequestTimeout and a close"},
    {"lost-answer", NO_ARGUMENT, FIELD(lost_answer), "the work is done, the answer is a TCP reset"},
    {"clock", SIGNED, FIELD(clock), "SECONDS  the server's clock is off by that much"},
    {"no-truncate-token", NO_ARGUMENT, FIELD(no_token), "a truncated listing without a token"},
    {"same-token", NO_ARGUMENT, FIELD(same_token),
     "listings that always give the first page's token"},
    {"add-key", WORD, FIELD(add_key), "ENCODED  listings hold this name too (percent-encoded)"},
    {"redirect", WORD, FIELD(redirect), "REGION  301 PermanentRedirect with x-amz-bucket-region"},
    {"expired-token", NO_ARGUMENT, FIELD(expired_token), "400 ExpiredToken, as S3 does (hub: 401)"},
    {"no-conditions", NO_ARGUMENT, FIELD(no_conditions),
     "If-Match and If-None-Match of a PUT are ignored"},
    {"gzip", NO_ARGUMENT, FIELD(gzip), "Content-Encoding: gzip on the bytes as they are stored"},
};

#define ACTIONS (sizeof fault_actions / sizeof *fault_actions)

struct fault_rule {
    struct fault_rule *next;
    char *line;
    char method[16];
    char *pattern;
    char *op; /* NULL: any */
    int side; /* -1: any */
    uint64_t from, to;
    double p;
    uint64_t random;
    uint64_t matched, acted;
    struct fault fault;
};

void fault_none(struct fault *f)
{
    *f = (struct fault){0};
    for (size_t i = 0; i < ACTIONS; i++) {
        if (fault_actions[i].argument != WORD)
            *(int64_t *)((char *)f + fault_actions[i].offset) = FAULT_UNSET;
    }
}

/* What rule asks for goes over what *out holds. */
static void merge(struct fault *out, const struct fault *rule)
{
    for (size_t i = 0; i < ACTIONS; i++) {
        const struct action *a = &fault_actions[i];
        const char *from = (const char *)rule + a->offset;
        bool asked = a->argument == WORD ? *from != '\0' : *(const int64_t *)from != FAULT_UNSET;
        if (asked)
            memcpy((char *)out + a->offset, from, a->size);
    }
}

static void rule_free(struct fault_rule *r)
{
    free(r->line);
    free(r->pattern);
    free(r->op);
    free(r);
}

static void rules_free(struct fault_rule *r)
{
    while (r) {
        struct fault_rule *next = r->next;
        rule_free(r);
        r = next;
    }
}

/* --- parsing ----------------------------------------------------------------------------- */

static bool set_action(struct fault *f, const struct action *a, const char *arg)
{
    char *at = (char *)f + a->offset;
    char *end = NULL;
    int64_t n = 1;
    switch (a->argument) {
    case NO_ARGUMENT:
        if (arg)
            return false;
        break;
    case WORD:
        return arg && *arg && snprintf(at, a->size, "%s", arg) < (int)a->size;
    case NUMBER_OR_ZERO:
        if (!arg)
            arg = "0";
        /* fall through */
    case NUMBER:
    case SIGNED:
        n = arg ? strtoll(arg, &end, 10) : 0;
        if (!arg || end == arg || *end || (a->argument != SIGNED && n < 0))
            return false;
        break;
    }
    memcpy(at, &n, sizeof n);
    return true;
}

static bool set_nth(struct fault_rule *r, const char *arg)
{
    char *end;
    r->from = strtoull(arg, &end, 10);
    r->to = r->from;
    if (*end == '-')
        r->to = end[1] ? strtoull(end + 1, &end, 10) : (end++, UINT64_MAX);
    return end != arg && *end == '\0' && r->from >= 1 && r->from <= r->to;
}

static bool set_p(struct fault_rule *r, const char *arg)
{
    char *end;
    r->p = strtod(arg, &end);
    return end != arg && *end == '\0' && r->p > 0 && r->p <= 1;
}

static bool set_side(struct fault_rule *r, const char *arg)
{
    for (int i = 0; i < SIDE_ADMIN; i++) {
        if (strcmp(arg, side_names[i]) == 0)
            r->side = i;
    }
    return r->side >= 0 || strcmp(arg, "any") == 0;
}

static bool set_word(struct fault_rule *r, char *word)
{
    char *arg = strchr(word, '=');
    if (arg)
        *arg++ = '\0';
    if (arg && strcmp(word, "nth") == 0)
        return set_nth(r, arg);
    if (arg && strcmp(word, "p") == 0)
        return set_p(r, arg);
    if (arg && strcmp(word, "seed") == 0)
        return str_u64(arg, &r->random);
    if (arg && strcmp(word, "side") == 0)
        return set_side(r, arg);
    if (arg && strcmp(word, "op") == 0)
        return (r->op = str_copy(arg)) != NULL;
    for (size_t i = 0; i < ACTIONS; i++) {
        if (strcmp(word, fault_actions[i].name) == 0)
            return set_action(&r->fault, &fault_actions[i], arg);
    }
    return false;
}

static struct fault_rule *parse(const char *line, struct nc_err *err)
{
    struct fault_rule *r = str_alloc(sizeof *r);
    r->line = str_copy(line);
    r->side = -1;
    r->from = 1;
    r->to = UINT64_MAX;
    r->p = 1;
    fault_none(&r->fault);
    char *copy = str_copy(line), *save = NULL;
    char *verb = strtok_r(copy, " \t\r", &save), *pattern = strtok_r(NULL, " \t\r", &save);
    bool ok = verb && pattern && snprintf(r->method, sizeof r->method, "%s", verb) < 16;
    size_t words = 0;
    if (ok)
        r->pattern = str_decode(pattern, strlen(pattern), false);
    ok = ok && r->pattern;
    for (char *word; ok && (word = strtok_r(NULL, " \t\r", &save)); words++) {
        ok = set_word(r, word);
        if (!ok)
            nc_err_set(err, "Usage", "fault '%s': '%s' is not understood; see ncdev help", line,
                       word);
    }
    if (!ok || words == 0) {
        if (ok || !r->pattern)
            nc_err_set(err, "Usage", "fault '%s': wanted VERB PATTERN ... ACTION; see ncdev help",
                       line);
        rule_free(r);
        r = NULL;
    }
    free(copy);
    return r;
}

static void append(struct fault_rule **list, struct fault_rule *r)
{
    while (*list)
        list = &(*list)->next;
    *list = r;
}

void faults_init(struct faults *f)
{
    *f = (struct faults){0};
    pthread_mutex_init(&f->lock, NULL);
}

void faults_free(struct faults *f)
{
    rules_free(f->rules);
    pthread_mutex_destroy(&f->lock);
}

int faults_add(struct faults *f, const char *line, struct nc_err *err)
{
    struct fault_rule *r = parse(line, err);
    if (!r)
        return -1;
    pthread_mutex_lock(&f->lock);
    append(&f->rules, r);
    pthread_mutex_unlock(&f->lock);
    return 0;
}

int faults_replace(struct faults *f, const char *text, struct nc_err *err)
{
    struct fault_rule *list = NULL;
    char *copy = str_copy(text), *save = NULL;
    int rc = 0;
    for (char *line = strtok_r(copy, "\n", &save); line && !rc;
         line = strtok_r(NULL, "\n", &save)) {
        line += strspn(line, " \t\r");
        if (*line == '\0' || *line == '#')
            continue;
        struct fault_rule *r = parse(line, err);
        if (r)
            append(&list, r);
        else
            rc = -1;
    }
    if (!rc) {
        pthread_mutex_lock(&f->lock);
        struct fault_rule *old = f->rules;
        f->rules = list;
        list = old;
        pthread_mutex_unlock(&f->lock);
    }
    rules_free(list);
    free(copy);
    return rc;
}

/* --- matching ---------------------------------------------------------------------------- */

/* splitmix64: a seed gives the same choices each run. */
static double draw(struct fault_rule *r)
{
    uint64_t z = r->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

static bool acts(struct fault_rule *r, const struct fault_target *t)
{
    if ((strcmp(r->method, "ANY") != 0 && strcmp(r->method, t->method) != 0) ||
        (r->side >= 0 && r->side != (int)t->side) || (r->op && strcmp(r->op, t->op) != 0) ||
        fnmatch(r->pattern, t->path, FNM_NOESCAPE) != 0)
        return false;
    r->matched++;
    if (r->matched < r->from || r->matched > r->to || (r->p < 1 && draw(r) >= r->p))
        return false;
    r->acted++;
    return true;
}

bool faults_match(struct faults *f, const struct fault_target *t, struct fault *out)
{
    bool any = false;
    fault_none(out);
    pthread_mutex_lock(&f->lock);
    for (struct fault_rule *r = f->rules; r; r = r->next) {
        if (acts(r, t)) {
            merge(out, &r->fault);
            any = true;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return any;
}

void faults_json(struct faults *f, struct buf *out)
{
    buf_putc(out, '[');
    pthread_mutex_lock(&f->lock);
    for (struct fault_rule *r = f->rules; r; r = r->next) {
        buf_puts(out, r == f->rules ? "{\"rule\":" : ",{\"rule\":");
        str_json(out, r->line);
        buf_printf(out, ",\"matched\":%" PRIu64 ",\"acted\":%" PRIu64 "}", r->matched, r->acted);
    }
    pthread_mutex_unlock(&f->lock);
    buf_puts(out, "]\n");
}

static const char *next_part(char **at)
{
    const char *part = strsep(at, ":");
    return part && *part ? part : NULL;
}

int fault_status(const struct fault *f, char word[96], const char **code, const char **retry)
{
    char *at = word;
    snprintf(word, 96, "%s", f->status);
    const char *status = next_part(&at);
    *code = next_part(&at);
    *retry = next_part(&at);
    uint64_t number;
    return str_u64(status, &number) && number >= 200 && number < 600 ? (int)number : 500;
}

void faults_help(struct buf *out)
{
    buf_puts(out,
             "fault rules:\n"
             "  VERB PATTERN [nth=N | nth=N- | nth=N-M | p=0.1 [seed=S]]\n"
             "               [side=s3|hub|cdn|any] [op=UploadPart|...] ACTION[=ARG]...\n"
             "  VERB: an HTTP method or ANY. PATTERN: fnmatch on bucket/key or the hub's path.\n\n"
             "actions:\n");
    for (size_t i = 0; i < ACTIONS; i++)
        buf_printf(out, "  %-18s %s\n", fault_actions[i].name, fault_actions[i].help);
}
