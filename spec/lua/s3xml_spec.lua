local errors = require "nc.errors"
local s3xml  = require "nc.core.s3xml"

describe("nc.core.s3xml", function()
    it("reads a listing", function()
        assert.same({
            objects = {
                { key = "m/a b", size = 5368709121, etag = '"x-2"', modified = 1795946400 },
                { key = "m/c", size = 0 },
            },
            prefixes = { "m/sub/" },
            next_token = "t",
        }, s3xml.listing [[<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
              <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
              <NextContinuationToken>t</NextContinuationToken>
              <Contents><Key>m/a%20b</Key><Size>5368709121</Size><ETag>"x-2"</ETag>
                <LastModified>2026-11-29T10:00:00.000Z</LastModified></Contents>
              <Contents><Key>m/c</Key><Size>0</Size></Contents>
              <CommonPrefixes><Prefix>m/sub/</Prefix></CommonPrefixes>
            </ListBucketResult>]])
    end)

    it("returns nil and the server's own error", function()
        local result, e = s3xml.complete " <Error><Code>SlowDown</Code><Message>wait</Message></Error>"
        assert.is_nil(result)
        assert.is_true(errors.is(e, "SlowDown"))
        assert.is_true(e.retryable)
        assert.equal("SlowDown: wait", tostring(e))
        result, e = s3xml.complete ""
        assert.is_nil(result)
        assert.is_true(errors.is(e, "EmptyResponse"))
        result, e = s3xml.parts "<ListPartsResult>"
        assert.is_nil(result)
        assert.is_true(errors.is(e, "MalformedXML"))
    end)

    it("reads the other answers", function()
        assert.same({ code = "NoSuchKey", message = "gone", key = "k", retryable = false },
            s3xml.error "<Error><Code>NoSuchKey</Code><Message>gone</Message><Key>k</Key></Error>")
        assert.equal("u", s3xml.upload_id
            "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        assert.equal("e", s3xml.copy "<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")
        assert.same({ { number = 1, size = 7, etag = "a" }, next_marker = 1 }, s3xml.parts [[
            <ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>1</NextPartNumberMarker>
            <Part><PartNumber>1</PartNumber><ETag>a</ETag><Size>7</Size></Part></ListPartsResult>]])
        assert.same({ { key = "k", upload_id = "u" } }, s3xml.uploads [[
            <ListMultipartUploadsResult><IsTruncated>false</IsTruncated>
            <Upload><Key>k</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>]])
        assert.same({ { name = "b" } }, s3xml.buckets [[<ListAllMyBucketsResult><Buckets><Bucket>
            <Name>b</Name></Bucket></Buckets></ListAllMyBucketsResult>]])
        assert.equal("us-east-1", s3xml.location "<LocationConstraint/>")
        assert.same({ { key = "k", code = "AccessDenied" } }, s3xml.deleted [[<DeleteResult>
            <Error><Key>k</Key><Code>AccessDenied</Code></Error></DeleteResult>]])
    end)

    it("reads the keys that STS hands out", function()
        assert.same({ access_key = "AK", secret_key = "SK", session_token = "T", expires = 1795946400 },
            s3xml.sts [[<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
              <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AK</AccessKeyId>
              <SecretAccessKey>SK</SecretAccessKey><SessionToken>T</SessionToken>
              <Expiration>2026-11-29T10:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
              </AssumeRoleWithWebIdentityResponse>]])
        local result, e = s3xml.sts [[<ErrorResponse><Error><Type>Sender</Type>
            <Code>ExpiredTokenException</Code><Message>Token expired</Message></Error></ErrorResponse>]]
        assert.is_nil(result)
        assert.is_true(errors.is(e, "ExpiredTokenException"))
    end)

    it("writes request bodies", function()
        assert.equal('<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Part>'
            .. '<PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part></CompleteMultipartUpload>',
            s3xml.build_complete { { number = 1, etag = '"a"' } })
        assert.matches("<Key>a&amp;b</Key>", s3xml.build_delete { "a&b" })
        assert.has_error(function() s3xml.build_delete { "a\1" } end)
        assert.has_error(function() s3xml.build_delete { "a\0b" } end)
        assert.has_error(function() s3xml.build_complete { { number = 0, etag = "a" } } end)
        assert.has_error(function() s3xml.build_complete { { number = 1 } } end)
    end)
end)
