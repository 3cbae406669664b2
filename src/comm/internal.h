/** \file internal.h  What the files of src/comm share; the only place, with
 *  its includers, that knows MPI.
 *
 *  A collective in flight is a "work": a list of MPI requests and a function
 *  advance() that is called each time when all of them are done.  It posts the
 *  messages of the next stage, or returns true when nothing is left to do.
 *  Every wait drives all works of the process, since another rank may wait for
 *  the next stage of one that this rank does not wait for yet.
 */
#ifndef FSDP_COMM_INTERNAL_H
#define FSDP_COMM_INTERNAL_H

#include <mpi.h>

#include "comm/tuning.h"
#include "fsdp/comm.h"

enum { LEDGER_KEPT = 1024 };

struct fsdp_comm {
    MPI_Comm data;    /**< owned; the messages of the collectives          */
    MPI_Comm control; /**< owned; the ledger check, apart from the data    */
    int rank, size;
    char name[16];
    int in_flight;     /**< works started and not yet waited for            */
    uint64_t sequence; /**< of the last call                                */
    fsdp_comm_counter_t counters[FSDP_COLLECTIVE_COUNT];
    size_t kept; /**< entries of `ledger` that are valid                    */
    fsdp_ledger_entry_t ledger[LEDGER_KEPT]; /**< entry s is at s modulo    */
};

/** Messages posted and not yet known to be done. */
typedef struct fsdp_requests {
    int count, capacity;
    MPI_Request *handles; /**< [capacity], owned                             */
    MPI_Status *statuses; /**< [capacity], owned                             */
    int *expected; /**< [capacity], owned; bytes to be received, -1 if sent  */
} fsdp_requests_t;

/** A buffer cut into one row a rank.  The last rows may be short or empty. */
typedef struct fsdp_rows {
    size_t row; /**< bytes of a full row                                     */
    size_t all; /**< bytes of all rows                                       */
} fsdp_rows_t;

struct fsdp_work {
    fsdp_comm_t *comm; /**< borrowed                                        */
    fsdp_ledger_entry_t call;
    bool counted; /**< in the counters of `comm`                            */
    bool (*advance)(fsdp_work_t *work);
    int stage; /**< how often advance() was called                          */
    bool done;
    fsdp_requests_t requests;
    const void *in;    /**< borrowed                                        */
    void *out;         /**< borrowed; in and out where they are the same    */
    fsdp_rows_t rows;  /**< how the buffer that is cut is cut               */
    void *scratch;     /**< owned                                           */
    double started;    /**< when the start began                            */
    fsdp_work_t *next; /**< in the list of works in flight                  */
};

/** The arguments of a collective, as far as the ledger knows them. */
typedef struct fsdp_call {
    fsdp_collective_t kind;
    const char *unit;
    fsdp_dtype_t dtype;
    fsdp_reduce_op_t op;
    fsdp_reduce_order_t order;
    int root;
    size_t count;
} fsdp_call_t;

/* ---- work.c ------------------------------------------------------------- */

/** Enters the call in ledger and counters, compares it over the ranks if that
 *  is on, and makes an idle work; the caller adds its buffers. */
fsdp_work_t *fsdp_work_create(fsdp_comm_t *comm, const fsdp_call_t *call);
/** The same for a meeting of the library's own: in the ledger, not counted. */
fsdp_work_t *fsdp_work_create_uncounted(fsdp_comm_t *comm,
                                        const fsdp_call_t *call);
/** A work outside of ledger and counters, which waits on behalf of `call`. */
fsdp_work_t *fsdp_work_create_bare(fsdp_comm_t *comm,
                                   const fsdp_ledger_entry_t *call);
/** Works that exist, on all communicators. */
long fsdp_work_alive(void);
/** Posts the first stage and returns `work`. */
fsdp_work_t *fsdp_work_start(fsdp_work_t *work,
                             bool (*advance)(fsdp_work_t *work));
/** Posts messages of `bytes` bytes to or from `peer`, in pieces that an int can
 *  count; nothing for 0 bytes. */
void fsdp_work_send(fsdp_work_t *work, const void *data, size_t bytes,
                    int peer);
void fsdp_work_receive(fsdp_work_t *work, void *data, size_t bytes, int peer);
/** A message of nothing but its arrival. */
void fsdp_work_send_empty(fsdp_work_t *work, int peer);
void fsdp_work_receive_empty(fsdp_work_t *work, int peer);
/** Room for one more request of MPI's own collectives. */
MPI_Request *fsdp_work_request(fsdp_work_t *work);
/** Counts bytes that MPI's own collectives move. */
void fsdp_work_count_bytes(fsdp_work_t *work, size_t bytes);

/* ---- rows.c ------------------------------------------------------------- */

/** `count` elements as evenly as ceil(count / size) allows. */
fsdp_rows_t fsdp_rows_cut(size_t count, fsdp_dtype_t dtype, int size);
/** The first byte of row r; that of row W is the end. */
size_t fsdp_rows_begin(const fsdp_rows_t *rows, int r);
size_t fsdp_rows_bytes(const fsdp_rows_t *rows, int r);
/** Posts the exchange in which each rank gets everybody's version of its own
 *  row of `in`, W - 1 rows of scratch. */
void fsdp_rows_exchange(fsdp_work_t *work);
/** After that: the reduction of them all, to `out`. */
void fsdp_rows_reduce(const fsdp_work_t *work, void *out);

/* ---- progress.c --------------------------------------------------------- */

/** Puts a work into the list that every wait drives. */
void fsdp_progress_add(fsdp_work_t *work);
/** Drives all works until this one is done. */
void fsdp_progress_until_done(fsdp_work_t *work);
/** Drives all works once. */
void fsdp_progress_poll(void);

/* ---- barrier.c ---------------------------------------------------------- */

/** A barrier that is not counted, before a blocking call of MPI: a rank that
 *  does not come is then found by the watchdog. */
void fsdp_comm_meet(fsdp_comm_t *comm, const char *unit);

/* ---- ledger.c, ledger_check.c ------------------------------------------- */

/** Adds a call to the ledger of `comm`; valid until it is overwritten. */
const fsdp_ledger_entry_t *fsdp_ledger_add(fsdp_comm_t *comm,
                                           const fsdp_call_t *call);
/** Returns only if all ranks of `comm` are about to call the same. */
void fsdp_ledger_check(fsdp_comm_t *comm, const fsdp_ledger_entry_t *mine);

/* ---- watchdog.c --------------------------------------------------------- */

/** Makes / frees what the ranks of a node share.  Collective over the world. */
void fsdp_watchdog_create(void);
void fsdp_watchdog_destroy(void);
/** Shows the others what this rank calls / begins to wait for / that it goes
 *  on. */
void fsdp_watchdog_note_call(const fsdp_ledger_entry_t *call);
void fsdp_watchdog_note_wait(const fsdp_ledger_entry_t *call);
void fsdp_watchdog_note_running(void);
/** Ends all ranks, with everybody's last line, if a wait of `waited` seconds
 *  is too long. */
void fsdp_watchdog_check(double waited);
/** True for the first rank of the node that asks; the one that may print. */
bool fsdp_watchdog_claim(void);

/* ---- lifeline.c --------------------------------------------------------- */

/** From the one to the other a rank of `node`, the communicator of the ranks of
 *  this node, that dies ends the run, with a message that names it.  Collective
 *  over `node`. */
void fsdp_lifeline_create(MPI_Comm node);
/** MPI has ended meanwhile.  Not collective. */
void fsdp_lifeline_destroy(void);

/* ---- comm.c ------------------------------------------------------------- */

/** Fills `comm` with duplicates of `mpi`.  Collective. */
void fsdp_comm_open(fsdp_comm_t *comm, MPI_Comm mpi, const char *name);
/** Frees what it owns, not `comm` itself.  Collective. */
void fsdp_comm_close(fsdp_comm_t *comm);
/** MPI_DATATYPE_NULL for bf16 and fp16, which MPI does not know. */
MPI_Datatype fsdp_comm_mpi_type(fsdp_dtype_t dtype);

/* ---- world.c ------------------------------------------------------------ */

/** The rank in the world of a rank of `comm`. */
int fsdp_comm_world_rank(const fsdp_comm_t *comm, int rank);
/** For ranks that another one's message speaks for: waits for the end. */
_Noreturn void fsdp_comm_await_end(void);
/** Prints the message of a rank that has the right to, and ends all ranks. */
_Noreturn void fsdp_comm_print_and_end(const char *text, size_t length);
/** Ends all ranks if `code` is not MPI_SUCCESS. */
void fsdp_comm_check_mpi(int code, const char *doing);

/* ---- reduce_order.c, reduce_pair.c -------------------------------------- */

/** One reduction on this rank of the terms of all ranks. */
typedef struct fsdp_reduction {
    fsdp_dtype_t dtype;
    fsdp_reduce_op_t op;
    fsdp_reduce_order_t order;
    int size;        /**< W                                                 */
    int own;         /**< which term must not be written to, unless as out  */
    int destination; /**< r of FSDP_ORDER_RING                              */
    char **terms;    /**< [W] borrowed; each [count], used as scratch       */
    void *out;       /**< [count] borrowed; may be the term `own`           */
    size_t count;
} fsdp_reduction_t;

void fsdp_reduce_terms(const fsdp_reduction_t *reduction);

/** out[i] = a[i] op b[i]; `out` may be `a` or `b`. */
void fsdp_reduce_pair(fsdp_dtype_t dtype, fsdp_reduce_op_t op, void *out,
                      const void *a, const void *b, size_t count);
/** Is there a sum of this type? */
bool fsdp_reduce_knows(fsdp_dtype_t dtype);

#endif
