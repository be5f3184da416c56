/* What becomes of the parts and files of a transfer. Private to transfer/; the lock is held. */
#ifndef NC_TRANSFER_FATE_H
#define NC_TRANSFER_FATE_H

#include "transfer/state.h"

/* The file's next operation in the sink is to begin: FILE_OPENING, FILE_FINISHING, FILE_LEAVING. */
void fate_begin(struct transfer *t, struct file *f, enum file_state state);
/* FILE_DONE or FILE_FAILED. */
void fate_end(struct transfer *t, struct file *f, enum file_state state);
/* It may go to the sink. */
void fate_ready(struct transfer *t, struct part *p);
/* To the sink, or aside until the sink is ready for the file. */
void fate_queue_part(struct transfer *t, struct part *p);
/* Its buffer goes back and the part is gone. */
void fate_release(struct transfer *t, struct part *p);
/* No further part of it is to be claimed. */
void fate_close_turn(struct transfer *t, struct file *f);
/* All parts stored and checked: finish it. */
void fate_finish_when_whole(struct transfer *t, struct file *f);

/* The whole job ends, for this reason. */
void fate_stop(struct transfer *t, const struct nc_err *why);
/* The file ends, or, where the reason is one that all share, the job. */
void fate_fail(struct transfer *t, struct file *f, const struct nc_err *why);
/* Once nothing of a failing file is in flight, the sink may leave it. */
void fate_leave_when_idle(struct transfer *t, struct file *f);
/* The sink has removed what it had: those bytes are not done. */
void fate_forget_parts(struct transfer *t, struct file *f);
/* Everything as before the first part, to fetch the file once more. */
void fate_start_over(struct transfer *t, struct file *f);
/* What source and sink know of it; keep: another run may go on with what the sink has. */
void fate_forget(struct transfer *t, struct file *f, bool keep);

#endif
