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

/* Objects below prefix (which ends in '/' unless it is empty). Every range after the first carries
 * If-Match, so that an object that is replaced on the way is noticed (code "Changed"). */
struct source *source_s3_new(struct s3_client *client, const char *prefix);

/* Files below a directory. One that can't be opened fails every fetch. */
struct source *source_dir_new(const char *root);

/* Objects below prefix. A file of one part is one PUT; any other is a multipart upload, which is
 * continued where file->upload_id is set. An object's expected digest goes into its metadata as
 * x-amz-meta-sha256. Uploads are aborted only when their file has failed for good. */
struct sink *sink_s3_new(struct s3_client *client, const char *prefix);

/* Files below a directory: each is NAME.<random>.part until it is whole and on the disk. `root` is
 * created if it is missing. */
struct sink *sink_dir_new(const char *root);

/* Nowhere: the bytes are only checked. */
struct sink *sink_none_new(void);

#endif
