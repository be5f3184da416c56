#include "unit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "s3/s3_xml.h"

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define NS " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

static struct nc_err err;

static void error_cases(void)
{
    const char *body =
        "\n\n  \r\n" HEAD "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region "
        "'us-east-1' is wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region>"
        "<BucketName>b</BucketName><RequestId>R1</RequestId></Error>";
    struct s3_error e;
    CHECK(s3_xml_error(body, strlen(body), &e, &err) == 0, "an error behind keep-alive blanks");
    CHECK_STR(e.code, "AuthorizationHeaderMalformed", "its code");
    CHECK_STR(e.message, "the region 'us-east-1' is wrong; expecting 'eu-west-1'", "its message");
    CHECK_STR(e.region, "eu-west-1", "its region");
    CHECK_STR(e.bucket, "b", "its bucket");
    CHECK_STR(e.request_id, "R1", "its request");
    CHECK(!*e.endpoint && !e.server_time, "what is absent is empty");

    body = "<Error><Code>RequestTimeTooSkewed</Code><ServerTime>2026-11-29T10:00:00Z</ServerTime>"
           "</Error>";
    CHECK(s3_xml_error(body, strlen(body), &e, &err) == 0 && e.server_time == 1795946400,
          "the server's time");
    body = "<Error><Message>x</Message></Error>";
    CHECK(s3_xml_error(body, strlen(body), &e, &err) == -1, "an error without a code");
    body = "<html><body>Welcome</body></html>";
    CHECK(s3_xml_error(body, strlen(body), &e, &err) == -1 && !strcmp(err.code, "MalformedXML"),
          "a web page is no error document");
    CHECK(s3_xml_error("", 0, &e, &err) == -1 && !strcmp(err.code, "EmptyResponse"),
          "nothing is an empty response");
    CHECK(s3_code_retryable("SlowDown") && !s3_code_retryable("AccessDenied"), "retryable codes");
}

static void listing_cases(void)
{
    const char *body = HEAD
        "<ListBucketResult" NS "><Name>b</Name><Prefix>m/</Prefix><KeyCount>3</KeyCount>"
        "<MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
        "<NextContinuationToken>t/1==</NextContinuationToken>"
        "<Contents><Key>m/a+b%2Bc%C3%A9%0A</Key><LastModified>2026-11-29T10:00:00.000Z"
        "</LastModified><ETag>&quot;abc-2&quot;</ETag><Size>5368709121</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        "<Contents><Key>m/ </Key><Size>0</Size></Contents>"
        "<CommonPrefixes><Prefix>m/sub%2F</Prefix></CommonPrefixes></ListBucketResult>";
    struct s3_listing l;
    CHECK(s3_xml_listing(body, strlen(body), &l, &err) == 0, "a listing");
    CHECK(l.object_count == 2 && l.prefix_count == 1, "two keys and a prefix");
    CHECK_STR(l.objects[0].key, "m/a b+c\xc3\xa9\n", "keys are decoded once");
    CHECK(l.objects[0].size == 5368709121, "the size");
    CHECK_STR(l.objects[0].etag, "\"abc-2\"", "the ETag keeps its quotes");
    CHECK(l.objects[0].modified == 1795946400, "the date");
    CHECK_STR(l.objects[1].key, "m/ ", "a trailing blank is part of a key");
    CHECK(!l.objects[1].etag && !l.objects[1].modified, "ETag and date may be absent");
    CHECK_STR(l.prefixes[0], "m/sub/", "prefixes are decoded");
    CHECK(l.truncated, "truncated");
    CHECK_STR(l.next_token, "t/1==", "the token");
    s3_listing_free(&l);
    s3_listing_free(&l);

    body = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key><![CDATA[a&]]>b"
           "<!-- c -->&lt;%20</Key><Size>1</Size></Contents></ListBucketResult>";
    CHECK(s3_xml_listing(body, strlen(body), &l, &err) == 0, "CDATA, comments and references");
    CHECK_STR(l.objects ? l.objects[0].key : NULL, "a&b<%20",
              "are one text, and only encoded keys are decoded");
    s3_listing_free(&l);

    static const struct {
        const char *what, *code, *body;
    } bad[] = {
        {"truncated without a token", "MalformedXML",
         "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"},
        {"truncated with an empty token", "MalformedXML",
         "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken/>"
         "</ListBucketResult>"},
        {"no IsTruncated", "MalformedXML", "<ListBucketResult/>"},
        {"a size that is none", "MalformedXML",
         "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>-1</Size>"
         "</Contents></ListBucketResult>"},
        {"an object without a key", "MalformedXML",
         "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Size>1</Size></Contents>"
         "</ListBucketResult>"},
        {"a key that holds elements", "MalformedXML",
         "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a<b/></Key><Size>1"
         "</Size></Contents></ListBucketResult>"},
        {"a NUL in a key", "UnsafeKey",
         "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
         "<Contents><Key>a%00b</Key><Size>1</Size></Contents></ListBucketResult>"},
        {"half an escape", "MalformedXML",
         "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
         "<Contents><Key>a%4</Key><Size>1</Size></Contents></ListBucketResult>"},
        {"half a document", "MalformedXML",
         "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key>"},
        {"another document", "MalformedXML", "<ListAllMyBucketsResult/>"},
        {"a refusal", "NoSuchBucket", "<Error><Code>NoSuchBucket</Code></Error>"},
        {"two documents", "MalformedXML", "<Error><Code>A</Code></Error><Error/>"},
        {"a DOCTYPE", "MalformedXML",
         "<!DOCTYPE a [<!ENTITY e \"x\">]><ListBucketResult><IsTruncated>&e;</IsTruncated>"
         "</ListBucketResult>"},
        {"an external DTD", "MalformedXML",
         "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><ListBucketResult/>"},
        {"an undefined entity", "MalformedXML",
         "<ListBucketResult><IsTruncated>&e;</IsTruncated></ListBucketResult>"},
        {"20 nested elements", "MalformedXML",
         "<ListBucketResult><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a></a></a>"
         "</a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a>"
         "</ListBucketResult>"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(s3_xml_listing(bad[i].body, strlen(bad[i].body), &l, &err) == -1, bad[i].what);
        CHECK_STR(err.code, bad[i].code, bad[i].what);
        s3_listing_free(&l);
    }
}

static void large_listing(void)
{
    struct buf b;
    buf_init(&b, 1 << 24);
    buf_puts(&b, HEAD "<ListBucketResult" NS "><IsTruncated>false</IsTruncated>");
    for (int i = 0; i < 1000; i++)
        buf_printf(&b,
                   "<Contents><Key>models/inkling/model-%05d-of-01000.safetensors</Key>"
                   "<LastModified>2026-11-29T10:00:00.000Z</LastModified>"
                   "<ETag>&quot;0123456789abcdef0123456789abcdef-17&quot;</ETag>"
                   "<Size>%d</Size><Owner><ID>x</ID><DisplayName>y</DisplayName></Owner>"
                   "<StorageClass>STANDARD</StorageClass></Contents>\n",
                   i, i);
    buf_puts(&b, "</ListBucketResult>");
    struct s3_listing l;
    uint64_t start = clock_us();
    int rc = s3_xml_listing(b.data, b.len, &l, &err);
    uint64_t us = clock_us() - start;
    CHECK(rc == 0 && l.object_count == 1000 && l.objects[999].size == 999, "a page of 1000 keys");
    char what[64];
    snprintf(what, sizeof what, "is read within 5 s (%.1f ms)", (double)us / 1000);
    CHECK(us < 5000000, what); /* what grows with the square of its length takes longer */
    s3_listing_free(&l);
    buf_free(&b);
}

static void multipart_cases(void)
{
    char *text = NULL;
    const char *body = "<InitiateMultipartUploadResult" NS "><Bucket>b</Bucket><Key>k</Key>"
                       "<UploadId>2~x</UploadId></InitiateMultipartUploadResult>";
    CHECK(s3_xml_upload_id(body, strlen(body), &text, &err) == 0, "an upload begins");
    CHECK_STR(text, "2~x", "with its id");
    free(text);
    text = NULL;
    body = "<InitiateMultipartUploadResult><UploadId/></InitiateMultipartUploadResult>";
    CHECK(s3_xml_upload_id(body, strlen(body), &text, &err) == -1 && !text, "an empty id");

    body = "   " HEAD "<CompleteMultipartUploadResult" NS "><Location>x</Location>"
           "<ETag>\"e-2\"</ETag></CompleteMultipartUploadResult>";
    CHECK(s3_xml_complete(body, strlen(body), &text, &err) == 0, "an upload ends");
    CHECK_STR(text, "\"e-2\"", "with its ETag");
    free(text);
    text = NULL;
    body = "<CompleteMultipartUploadResult" NS "><Key>k</Key><ETag></ETag>"
           "</CompleteMultipartUploadResult>";
    CHECK(s3_xml_complete(body, strlen(body), &text, &err) == 0, "an upload ends as Ceph says it");
    CHECK_STR(text, "", "without an ETag");
    free(text);
    text = NULL;
    static const struct {
        const char *what, *code, *body;
        bool retryable;
    } bad[] = {
        {"a 200 with an error", "InternalError",
         "  " HEAD "<Error><Code>InternalError</Code><Message>try again</Message></Error>", true},
        {"a 200 with a refusal", "InvalidPart", "<Error><Code>InvalidPart</Code></Error>", false},
        {"an empty 200", "EmptyResponse", "", false},
        {"a 200 with blanks only", "EmptyResponse", " \n ", false},
        {"half an XML", "MalformedXML", "<CompleteMultipartUploadResult><ETag>\"e\"</ETag>", false},
        {"a result without an ETag", "MalformedXML",
         "<CompleteMultipartUploadResult><Key>k</Key></CompleteMultipartUploadResult>", false},
        {"text", "MalformedXML", "OK", false},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(s3_xml_complete(bad[i].body, strlen(bad[i].body), &text, &err) == -1 && !text,
              bad[i].what);
        CHECK_STR(err.code, bad[i].code, bad[i].what);
        CHECK(err.retryable == bad[i].retryable, bad[i].what);
    }
    body = "<CopyPartResult><LastModified>2026-11-29T10:00:00Z</LastModified><ETag>x</ETag>"
           "</CopyPartResult>";
    CHECK(s3_xml_copy(body, strlen(body), &text, &err) == 0 && !strcmp(text, "x"), "a part copied");
    free(text);
    body = "<Error><Code>SlowDown</Code></Error>";
    CHECK(s3_xml_copy(body, strlen(body), &text, &err) == -1 && err.retryable, "a copy refused");

    body = "<ListPartsResult><UploadId>u</UploadId><PartNumberMarker>0</PartNumberMarker>"
           "<NextPartNumberMarker>2</NextPartNumberMarker><IsTruncated>true</IsTruncated>"
           "<Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag><Size>5242880</Size></Part>"
           "<Part><PartNumber>2</PartNumber><ETag>\"b\"</ETag><Size>7</Size></Part>"
           "</ListPartsResult>";
    struct s3_parts p;
    CHECK(s3_xml_parts(body, strlen(body), &p, &err) == 0 && p.count == 2 && p.truncated &&
              p.next_marker == 2 && p.parts[1].number == 2 && p.parts[1].size == 7,
          "a page of parts");
    CHECK_STR(p.parts[0].etag, "\"a\"", "with their ETags");
    s3_parts_free(&p);
    static const char *const bad_parts[] = {
        "<ListPartsResult/>",
        "<ListPartsResult><IsTruncated>true</IsTruncated></ListPartsResult>",
        "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>0"
        "</NextPartNumberMarker></ListPartsResult>",
        "<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>10001</PartNumber>"
        "<ETag>a</ETag><Size>1</Size></Part></ListPartsResult>",
        "<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>1</PartNumber>"
        "<Size>1</Size></Part></ListPartsResult>",
        "<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>2</PartNumber>"
        "<ETag>a</ETag><Size>1</Size></Part><Part><PartNumber>2</PartNumber><ETag>a</ETag>"
        "<Size>1</Size></Part></ListPartsResult>",
    };
    for (size_t i = 0; i < sizeof bad_parts / sizeof *bad_parts; i++) {
        CHECK(s3_xml_parts(bad_parts[i], strlen(bad_parts[i]), &p, &err) == -1,
              "a list of parts that can't be trusted");
        s3_parts_free(&p);
    }

    body = "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true"
           "</IsTruncated><NextKeyMarker>a%2Fb</NextKeyMarker><NextUploadIdMarker>u2"
           "</NextUploadIdMarker><Upload><Key>a%2Fb</Key><UploadId>u1</UploadId>"
           "<Initiated>2026-11-29T10:00:00.000Z</Initiated></Upload>"
           "</ListMultipartUploadsResult>";
    struct s3_uploads u;
    CHECK(s3_xml_uploads(body, strlen(body), &u, &err) == 0 && u.count == 1 && u.truncated &&
              u.uploads[0].initiated == 1795946400,
          "a page of uploads");
    CHECK_STR(u.uploads[0].key, "a/b", "with keys decoded");
    CHECK_STR(u.next_key, "a/b", "and the marker too");
    CHECK_STR(u.next_upload_id, "u2", "and the other marker");
    s3_uploads_free(&u);
    body = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
           "</ListMultipartUploadsResult>";
    CHECK(s3_xml_uploads(body, strlen(body), &u, &err) == -1, "truncated without markers");
    s3_uploads_free(&u);
}

static void other_cases(void)
{
    const char *body = "<ListAllMyBucketsResult" NS "><Owner><ID>x</ID></Owner><Buckets><Bucket>"
                       "<Name>b1</Name><CreationDate>2026-11-29T10:00:00.000Z</CreationDate>"
                       "</Bucket><Bucket><Name>b2</Name></Bucket></Buckets>"
                       "</ListAllMyBucketsResult>";
    struct s3_buckets b;
    CHECK(s3_xml_buckets(body, strlen(body), &b, &err) == 0 && b.count == 2 &&
              !strcmp(b.buckets[1].name, "b2") && b.buckets[0].created == 1795946400,
          "buckets");
    s3_buckets_free(&b);

    char region[64];
    body = HEAD "<LocationConstraint" NS ">eu-west-3</LocationConstraint>";
    s3_xml_location(body, strlen(body), region, &err);
    CHECK_STR(region, "eu-west-3", "a location");
    body = "<LocationConstraint/>";
    s3_xml_location(body, strlen(body), region, &err);
    CHECK_STR(region, "us-east-1", "an empty location");
    body = "<LocationConstraint>EU</LocationConstraint>";
    s3_xml_location(body, strlen(body), region, &err);
    CHECK_STR(region, "eu-west-1", "an old location");

    body = "<DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code></Error></DeleteResult>";
    struct s3_delete_failures f;
    CHECK(s3_xml_deleted(body, strlen(body), &f, &err) == 0 && f.count == 1 &&
              !strcmp(f.failures[0].code, "AccessDenied") && !strcmp(f.failures[0].message, ""),
          "a key that was not deleted");
    s3_delete_failures_free(&f);
    body = "<DeleteResult/>";
    CHECK(s3_xml_deleted(body, strlen(body), &f, &err) == 0 && f.count == 0, "all deleted");
    s3_delete_failures_free(&f);
}

static void build_cases(void)
{
    struct buf b;
    buf_init(&b, 10000);
    struct s3_part parts[] = {{.number = 1, .etag = (char[]){"\"a\""}},
                              {.number = 2, .etag = (char[]){"b&<>"}}};
    CHECK(s3_xml_build_complete(&b, parts, 2) == 0, "a complete body");
    CHECK_STR(buf_str(&b),
              "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Part>"
              "<PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part><Part><PartNumber>2"
              "</PartNumber><ETag>b&amp;&lt;&gt;</ETag></Part></CompleteMultipartUpload>",
              "with what XML reserves escaped");
    buf_clear(&b);
    static const char *const keys[] = {"a\tb\r", "\xc3\xa9"};
    CHECK(s3_xml_build_delete(&b, keys, 2) == 0, "a delete body");
    CHECK_STR(
        buf_str(&b),
        "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>"
        "<Object><Key>a&#9;b&#13;</Key></Object><Object><Key>\xc3\xa9</Key></Object></Delete>",
        "with blanks kept");
    buf_clear(&b);
    static const char *const unsayable[] = {"a\x01"};
    CHECK(s3_xml_build_delete(&b, unsayable, 1) == -1, "a key that XML can't say is refused");
    buf_free(&b);
}

int main(void)
{
    error_cases();
    listing_cases();
    large_listing();
    multipart_cases();
    other_cases();
    build_cases();
    return unit_done();
}
