#include "s3/xml_read.h"

#include <libxml/SAX2.h>
#include <libxml/parser.h>
#include <libxml/parserInternals.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "net/url.h"

enum { MAX_DEPTH = 16 }; /* S3's own documents are five deep */

int xml_no_memory(struct nc_err *err)
{
    return nc_err_set(err, "ENOMEM", "out of memory reading the server's XML answer");
}

static pthread_once_t initialised = PTHREAD_ONCE_INIT;

static void refuse_document(xmlParserCtxtPtr parser, const char *why)
{
    parser->_private = (void *)why;
    xmlStopParser(parser);
}

static void on_doctype(void *ctx, const xmlChar *name, const xmlChar *external,
                       const xmlChar *system)
{
    (void)name, (void)external, (void)system;
    refuse_document(ctx, "it has a DOCTYPE");
}

static void on_element(void *ctx, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri,
                       int namespaces, const xmlChar **namespace_list, int attributes,
                       int defaulted, const xmlChar **attribute_list)
{
    xmlParserCtxtPtr parser = ctx;
    if (parser->nodeNr >= MAX_DEPTH)
        refuse_document(parser, "its elements are nested too deep");
    else
        xmlSAX2StartElementNs(ctx, name, prefix, uri, namespaces, namespace_list, attributes,
                              defaulted, attribute_list);
}

/* Comments and processing instructions are dropped, so that an element's text is one node. */
static void drop_comment(void *ctx, const xmlChar *value)
{
    (void)ctx, (void)value;
}

static void drop_instruction(void *ctx, const xmlChar *target, const xmlChar *data)
{
    (void)ctx, (void)target, (void)data;
}

int xml_document(const char *body, size_t len, xmlDocPtr *doc, struct nc_err *err)
{
    *doc = NULL;
    pthread_once(&initialised, xmlInitParser);
    while (len && text_is_blank(*body)) {
        body++;
        len--;
    }
    if (len == 0)
        return nc_err_set(err, "EmptyResponse", "the server's answer is empty where XML was due");
    if (len > INT_MAX)
        return xml_malformed(err, "it is too large");
    xmlParserCtxtPtr parser = xmlCreateMemoryParserCtxt(body, (int)len);
    if (!parser)
        return xml_no_memory(err);
    parser->sax->internalSubset = on_doctype;
    parser->sax->startElementNs = on_element;
    parser->sax->comment = drop_comment;
    parser->sax->processingInstruction = drop_instruction;
    xmlCtxtUseOptions(parser, XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
                                  XML_PARSE_NOCDATA | XML_PARSE_COMPACT);
    int rc = 0;
    xmlParseDocument(parser);
    if (parser->_private) {
        rc = xml_malformed(err, "%s", (const char *)parser->_private);
    } else if (!parser->wellFormed || !xmlDocGetRootElement(parser->myDoc)) {
        const char *why = parser->lastError.message;
        char line[200];
        snprintf(line, sizeof line, "%.*s", why ? (int)strcspn(why, "\n") : 0, why ? why : "");
        rc = xml_malformed(err, "it is not well-formed: %s", line);
    } else {
        *doc = parser->myDoc;
        parser->myDoc = NULL;
    }
    xmlFreeDoc(parser->myDoc);
    xmlFreeParserCtxt(parser);
    return rc;
}

bool xml_is(const xmlNode *node, const char *name)
{
    return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

const char *xml_name(const xmlNode *node)
{
    return (const char *)node->name;
}

xmlNodePtr xml_child(const xmlNode *node, const char *name)
{
    for (xmlNodePtr c = node->children; c; c = c->next) {
        if (xml_is(c, name))
            return c;
    }
    return NULL;
}

const char *xml_text(const xmlNode *node)
{
    const xmlNode *c = node->children;
    if (!c)
        return "";
    return c->type == XML_TEXT_NODE && !c->next ? (const char *)c->content : NULL;
}

const char *xml_child_text(const xmlNode *node, const char *name)
{
    const xmlNode *c = xml_child(node, name);
    return c ? xml_text(c) : NULL;
}

size_t xml_count(const xmlNode *node, const char *name)
{
    size_t n = 0;
    for (const xmlNode *c = node->children; c; c = c->next)
        n += xml_is(c, name);
    return n;
}

int xml_take_text(const xmlNode *node, const char *name, char **out, struct nc_err *err)
{
    const char *text = xml_child_text(node, name);
    if (!text)
        return xml_malformed(err, "it has no %s", name);
    *out = strdup(text);
    return *out ? 0 : xml_no_memory(err);
}

int xml_take_optional(const xmlNode *node, const char *name, char **out, struct nc_err *err)
{
    return xml_child(node, name) ? xml_take_text(node, name, out, err) : 0;
}

int xml_take_u64(const xmlNode *node, const char *name, uint64_t *out, struct nc_err *err)
{
    const char *text = xml_child_text(node, name);
    if (!text || text_u64(text, out))
        return xml_malformed(err, "its %s is not a number", name);
    return 0;
}

int xml_take_date(const xmlNode *node, const char *name, int64_t *out, struct nc_err *err)
{
    const xmlNode *c = xml_child(node, name);
    const char *text = c ? xml_text(c) : NULL;
    if (c && (!text || text_iso_date(text, out)))
        return xml_malformed(err, "its %s is not a date", name);
    return 0;
}

int xml_take_bool(const xmlNode *node, const char *name, bool *out, struct nc_err *err)
{
    const char *text = xml_child_text(node, name);
    if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return xml_malformed(err, "its %s is neither true nor false", name);
    *out = *text == 't';
    return 0;
}

int xml_take_key(const xmlNode *node, const char *name, bool encoded, char **out,
                 struct nc_err *err)
{
    const char *text = xml_child_text(node, name);
    if (!text || !encoded)
        return xml_take_text(node, name, out, err);
    struct buf key;
    buf_init(&key, strlen(text));
    int rc = 0;
    if (url_decode(&key, text, strlen(text), true))
        rc = xml_malformed(err, "a %s is not encoded as it says", name);
    else if (key.len && memchr(key.data, '\0', key.len))
        rc = nc_err_set(err, "UnsafeKey", "the listing holds a key with a NUL byte in it");
    else if (!(*out = buf_take(&key)))
        rc = xml_no_memory(err);
    buf_free(&key);
    return rc;
}

bool xml_keys_encoded(const xmlNode *root)
{
    const char *type = xml_child_text(root, "EncodingType");
    return type && strcmp(type, "url") == 0;
}
