/* The places a transfer moves files from and to. Each constructor's result goes into
 * transfer_options, which takes it over; NULL only without memory. Clients and the hub are borrowed
 * and must live as long as the transfer. */
#ifndef NC_TRANSFER_ENDS_H
#define NC_TRANSFER_ENDS_H

#include "hub/hub.h"
#include "s3/s3.h"
#include "transfer/transfer.h"

/* Files of repository "owner/name" at a commit. */
struct source *source_hub_new(struct hub *hub, const char *repository, const char *commit);

/* Objects below prefix (which ends in '/' unless it is empty). Every range carries If-Match, from
 * the first on where the file has an ETag, else from the second, so that an object that is replaced
 * on the way is noticed (code "Changed"). */
struct source *source_s3_new(struct s3_client *client, const char *prefix);

/* Files below a directory, holes left out. One that is changed while it is read fails with
 * "Changed"; one that can't be opened fails every fetch. */
struct source *source_dir_new(const char *root);

/* Objects below prefix. A file of one part is one PUT; any other is a multipart upload, which is
 * continued where file->upload_id is set. An object's expected digest goes into its metadata as
 * x-amz-meta-sha256. Uploads are aborted only when their file has failed for good. from: the
 * source's folder, where that is one, so that large files are read as they are sent; else NULL. */
struct sink *sink_s3_new(struct s3_client *client, const char *prefix, const char *from);

/* Makes that sink copy inside the server what nobody wants hashed, metadata included: the files
 * come from a bucket of the same service (s3_client_same_service). -1 only without memory. */
int sink_s3_copies_from(struct sink *sink, struct s3_client *from, const char *prefix);

/* Files below a directory: each is NAME.<8 hex digits>.part until it is whole and on the disk, with
 * a journal beside it where the file has a version and several parts (disk/temp_file.h). `root` is
 * created if it is missing. from: the source's folder, where that is one, so that a file may become
 * a clone (FICLONE) or be copied in the kernel (copy_file_range); else NULL. */
struct sink *sink_dir_new(const char *root, const char *from);

/* Nowhere: the bytes are only checked. */
struct sink *sink_none_new(void);

#endif
