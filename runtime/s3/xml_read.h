/* Reading untrusted XML: a whole document into a tree, without entities, network or deep nesting;
 * fields out of it, checked. Over libxml2; private to s3/. Any thread.
 *
 * A field that is missing or wrong is code "MalformedXML". Strings that a take gives are copies.
 */
#ifndef NC_S3_XML_READ_H
#define NC_S3_XML_READ_H

#include "base/err.h"

#include <libxml/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define xml_malformed(err, ...)                                                                    \
    nc_err_set(err, "MalformedXML", "the server's XML answer can't be used: " __VA_ARGS__)

int xml_no_memory(struct nc_err *err);

/* Leading blanks are skipped; nothing else is code "EmptyResponse". A DOCTYPE is refused. The
 * caller frees *doc with xmlFreeDoc; it is NULL after a failure. */
int xml_document(const char *body, size_t len, xmlDocPtr *doc, struct nc_err *err);

/* Namespaces are not compared: servers differ in which they send, if any. */
bool xml_is(const xmlNode *node, const char *name);
const char *xml_name(const xmlNode *node);
xmlNodePtr xml_child(const xmlNode *node, const char *name);
size_t xml_count(const xmlNode *node, const char *name);
/* An element's text, borrowed from the document; NULL where it holds elements. */
const char *xml_text(const xmlNode *node);
const char *xml_child_text(const xmlNode *node, const char *name);

int xml_take_text(const xmlNode *node, const char *name, char **out, struct nc_err *err);
int xml_take_optional(const xmlNode *node, const char *name, char **out, struct nc_err *err);
int xml_take_u64(const xmlNode *node, const char *name, uint64_t *out, struct nc_err *err);
/* Seconds since 1970; absent is 0. */
int xml_take_date(const xmlNode *node, const char *name, int64_t *out, struct nc_err *err);
int xml_take_bool(const xmlNode *node, const char *name, bool *out, struct nc_err *err);
/* A key, decoded where the answer says that keys are encoded. An S3 key can't hold a NUL, and a C
 * string with one would stand for another key: code "UnsafeKey". */
int xml_take_key(const xmlNode *node, const char *name, bool encoded, char **out,
                 struct nc_err *err);
bool xml_keys_encoded(const xmlNode *root);

#endif
