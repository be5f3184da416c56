/* Faults on demand, by rule. One rule a line (or a fault= option):
 *
 *     VERB PATTERN [nth=N | nth=N- | nth=N-M | p=0.1 [seed=S]] [side=s3|hub|cdn|any] [op=NAME]
 * ACTION...
 *
 * VERB is an HTTP method or ANY. PATTERN is an fnmatch pattern ('*' crosses '/') on the decoded
 * path without its first slash; for S3 that is bucket/key. A blank in it is written %20. A rule
 * counts the requests that match it; nth says which of them it acts on (default: all of them), p
 * acts on a share of them. Several rules may act on one request. The actions are listed in
 * fault_actions (faults.c), which is also what `ncdev help` prints. Thread-safe. */
#ifndef NCDEV_FAULTS_H
#define NCDEV_FAULTS_H

#include "base/buf.h"
#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum side { SIDE_S3, SIDE_HUB, SIDE_CDN, SIDE_ADMIN, SIDES };
extern const char *const side_names[SIDES];

/* What the rules that act on a request ask for, merged. Numbers are FAULT_UNSET where not asked
 * for, which is below zero. */
#define FAULT_UNSET INT64_MIN
struct fault {
    char status[96]; /* 503[:Code[:retry-after]] */
    char ok_error[48];
    char redirect[48];
    char add_key[256];
    int64_t cut, cut_chunked, stall, slow, reset, flip, clock;
    int64_t empty_ok, half_xml, accept_stall, wrong_range, etag_change, drop_part, ignore_range,
        expire, login_page, pointer, early_close, timeout_400, lost_answer, no_token, same_token,
        expired_token, gzip, no_conditions; /* flags: 1 where asked for, so test for > 0 */
};

struct fault_rule;

struct faults {
    pthread_mutex_t lock;
    struct fault_rule *rules; /* a list, in order */
};

struct fault_target {
    enum side side;
    const char *method;
    const char *path; /* decoded, no leading slash */
    const char *op;
};

void fault_none(struct fault *f); /* asks for nothing */

/* The parts of status=503:Code:retry-after; they point into word, code and retry are NULL where
 * not given. A status that can't be sent becomes 500. */
int fault_status(const struct fault *f, char word[96], const char **code, const char **retry);

void faults_init(struct faults *f);
void faults_free(struct faults *f);
int faults_add(struct faults *f, const char *line, struct nc_err *err);
/* All lines of text or, on an error, none: the rules before stay. Blank lines and # are skipped. */
int faults_replace(struct faults *f, const char *text, struct nc_err *err);
/* True where a rule acts; *out is always filled. */
bool faults_match(struct faults *f, const struct fault_target *t, struct fault *out);
void faults_json(struct faults *f,
                 struct buf *out); /* rules with the times they matched and acted */
void faults_help(struct buf *out);

#endif
