/** \file comm.h  Floor 1, comm: ranks and collectives.
 *
 *  PyTorch: torch.distributed (ProcessGroup, Work).
 *
 *  Each collective has a start that returns at once and a wait (what streams
 *  are in Python); the plain form is both.  Data move point to point; sums are
 *  made here, in the order that was asked for, so the bits of a reduction do
 *  not depend on MPI.  Waiting polls, yields and then sleeps for short times,
 *  so that more ranks than cores stay usable.  Counts are in elements per rank
 *  and may exceed 2^31.  Every rank of a communicator calls the same
 *  collectives in the same order with the same arguments ("collective").
 *  Only one thread of a process calls into this file.
 */
#ifndef FSDP_COMM_H
#define FSDP_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "fsdp/dtype.h"
#include "fsdp/status.h"

typedef struct fsdp_comm fsdp_comm_t;
typedef struct fsdp_work fsdp_work_t;

/** In which order the terms x_0 .. x_{W-1} of a sum are added. */
typedef enum fsdp_reduce_order {
    /** balanced binary tree over the rank: pairs (0,1), (2,3), ..., then pairs
     *  of those; a last odd one goes up unpaired.  The default. */
    FSDP_ORDER_TREE,
    FSDP_ORDER_RANK, /**< ((x_0 + x_1) + x_2) + ...                        */
    FSDP_ORDER_RING, /**< for destination r: x_{r+1} + x_{r+2} + ... + x_r  */
    FSDP_ORDER_MPI   /**< whatever MPI does: no promise of bits             */
} fsdp_reduce_order_t;

typedef enum fsdp_reduce_op { FSDP_SUM, FSDP_MAX, FSDP_MIN } fsdp_reduce_op_t;

/** "tree", "rank", "ring", "mpi". */
const char *fsdp_reduce_order_name(fsdp_reduce_order_t order);
/** False if `name` is none of them. */
bool fsdp_reduce_order_from_name(const char *name, fsdp_reduce_order_t *order);

/* ---- the world ---------------------------------------------------------- */

/** Starts MPI (MPI_THREAD_FUNNELED) and the world.  Collective, once.  Ends
 *  the process with a message if it was started by another MPI's mpirun (N
 *  processes that each see a world of one rank).  From here to the end of
 *  fsdp_finalize() a rank that is gone ends the run on all ranks, with a message
 *  that names it; a thread on each rank sees to that. */
void fsdp_init(int *argc, char ***argv);
/** Frees the world and ends MPI.  Collective. */
void fsdp_finalize(void);
bool fsdp_is_initialized(void);
/** What MPI says of itself, on one line: "MPICH Version: 4.0.2". */
const char *fsdp_comm_library_version(void);

/** The world; lives from fsdp_init() to fsdp_finalize(). */
fsdp_comm_t *fsdp_comm_world(void);
int fsdp_comm_rank(const fsdp_comm_t *comm);
int fsdp_comm_size(const fsdp_comm_t *comm);
/** "world" or the name given at its making. */
const char *fsdp_comm_name(const fsdp_comm_t *comm);

/** A new communicator of the ranks with the same color, ordered by key.
 *  Collective over `parent`; the caller owns the result. */
fsdp_comm_t *fsdp_comm_split(fsdp_comm_t *parent, int color, int key,
                             const char *name);
/** The same ranks with counters and a ledger of their own (so that the traffic
 *  of a verification is not counted as the run's). */
fsdp_comm_t *fsdp_comm_dup(fsdp_comm_t *parent, const char *name);
/** Collective; nulls the pointer. */
void fsdp_comm_destroy(fsdp_comm_t **comm);

/* ---- collectives -------------------------------------------------------- */
/* `unit` names the parameter group or purpose, for the ledger; borrowed until
 * the wait.  `in` must not change and `out` not be read before the wait. */

/** out[W][count] = the `in` [count] of each rank, in rank order.  `in` may be
 *  this rank's part of `out`.  Sends (W - 1) count elements. */
fsdp_work_t *fsdp_all_gather_start(fsdp_comm_t *comm, const char *unit,
                                   fsdp_dtype_t dtype, const void *in,
                                   void *out, size_t count);
void fsdp_all_gather(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                     const void *in, void *out, size_t count);

/** out[count] = sum over ranks q, in `order`, of row r of q's in[W][count],
 *  where r is this rank.  Sends (W - 1) count elements, as a ring would.
 *  float32, float64, int32, int64 (bf16 and fp16 with rounding to the type at
 *  each addition). */
fsdp_work_t *fsdp_reduce_scatter_start(fsdp_comm_t *comm, const char *unit,
                                       fsdp_dtype_t dtype,
                                       fsdp_reduce_order_t order,
                                       const void *in, void *out,
                                       size_t count);
void fsdp_reduce_scatter(fsdp_comm_t *comm, const char *unit,
                         fsdp_dtype_t dtype, fsdp_reduce_order_t order,
                         const void *in, void *out, size_t count);

/** data[count] = sum (in `order`), maximum or minimum over the ranks, the same
 *  bits on each.  Sends 2 (W - 1) ceil(count / W) elements at most. */
fsdp_work_t *fsdp_all_reduce_start(fsdp_comm_t *comm, const char *unit,
                                   fsdp_dtype_t dtype, fsdp_reduce_op_t op,
                                   fsdp_reduce_order_t order, void *data,
                                   size_t count);
void fsdp_all_reduce(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                     fsdp_reduce_op_t op, fsdp_reduce_order_t order, void *data,
                     size_t count);

/** data[count] of `root` on every rank. */
fsdp_work_t *fsdp_broadcast_start(fsdp_comm_t *comm, const char *unit,
                                  fsdp_dtype_t dtype, void *data, size_t count,
                                  int root);
void fsdp_broadcast(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                    void *data, size_t count, int root);

/** out[W][count] on `root` = each rank's in[count]; `out` is unused elsewhere. */
fsdp_work_t *fsdp_gather_start(fsdp_comm_t *comm, const char *unit,
                               fsdp_dtype_t dtype, const void *in, void *out,
                               size_t count, int root);
void fsdp_gather(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                 const void *in, void *out, size_t count, int root);

/** Each rank gives each rank some elements: `in` has those for rank 0, then those
 *  for rank 1, ..., send_counts[W] of them (which may be 0); `out` gets
 *  recv_counts[W] elements from rank 0, 1, ....  What rank q sends to r must be
 *  what r receives from q; counts are not borrowed.  The ledger's count is what
 *  this rank gives away in all, which may differ over the ranks. */
fsdp_work_t *fsdp_all_to_all_start(fsdp_comm_t *comm, const char *unit,
                                   fsdp_dtype_t dtype, const void *in,
                                   const size_t *send_counts, void *out,
                                   const size_t *recv_counts);
void fsdp_all_to_all(fsdp_comm_t *comm, const char *unit, fsdp_dtype_t dtype,
                     const void *in, const size_t *send_counts, void *out,
                     const size_t *recv_counts);

fsdp_work_t *fsdp_barrier_start(fsdp_comm_t *comm, const char *unit);
void fsdp_barrier(fsdp_comm_t *comm, const char *unit);

/** Ends a started collective and nulls the pointer; NULL is allowed. */
void fsdp_work_wait(fsdp_work_t **work);
/** Makes progress without waiting; true when the wait would return at once. */
bool fsdp_work_test(fsdp_work_t *work);

/** One truth for all: is `mine` true on every rank?  Collective. */
bool fsdp_comm_all_true(fsdp_comm_t *comm, bool mine);
/** All ranks get the status and message of the lowest rank whose status is not
 *  FSDP_OK (its message is then everybody's fsdp_error_message(), beginning
 *  with "rank R: " if ranks differ).  Collective. */
fsdp_status_t fsdp_comm_agree(fsdp_comm_t *comm, fsdp_status_t mine);

/* ---- ledger, watchdog, counters ----------------------------------------- */

typedef enum fsdp_collective {
    FSDP_ALL_GATHER,
    FSDP_REDUCE_SCATTER,
    FSDP_ALL_REDUCE,
    FSDP_BROADCAST,
    FSDP_GATHER,
    FSDP_ALL_TO_ALL,
    FSDP_BARRIER,
    FSDP_COLLECTIVE_COUNT
} fsdp_collective_t;

/** "all_gather", ... */
const char *fsdp_collective_name(fsdp_collective_t kind);

/** One collective as this rank is about to call it. */
typedef struct fsdp_ledger_entry {
    uint64_t sequence; /**< counted per communicator, from 1                   */
    fsdp_collective_t kind;
    fsdp_dtype_t dtype;
    fsdp_reduce_op_t op;       /**< all-reduce and reduce-scatter only         */
    fsdp_reduce_order_t order; /**< the same                                   */
    int root;                  /**< broadcast and gather only, else -1         */
    uint64_t count;            /**< elements per rank                          */
    uint64_t bytes;            /**< count x size of an element                 */
    char unit[48];             /**< cut to 47 characters, from the left        */
    char comm[16];
} fsdp_ledger_entry_t;

typedef enum fsdp_ledger_mode {
    FSDP_LEDGER_OFF,    /**< only the last entry is kept, for the watchdog     */
    FSDP_LEDGER_RECORD, /**< the last 1,024 are kept                           */
    FSDP_LEDGER_CHECK   /**< and compared over the ranks before each call      */
} fsdp_ledger_mode_t;

/** For all communicators; must be the same on all ranks. */
void fsdp_ledger_set_mode(fsdp_ledger_mode_t mode);
fsdp_ledger_mode_t fsdp_ledger_get_mode(void);
/** Entries made so far on `comm`, and the i-th latest of those kept (0 is the
 *  last one); NULL if it is not kept. */
uint64_t fsdp_ledger_length(const fsdp_comm_t *comm);
const fsdp_ledger_entry_t *fsdp_ledger_latest(const fsdp_comm_t *comm,
                                              size_t i);
/** "#12 reduce_scatter world h.1 float32 sum/tree 3072 elements 12288 bytes" */
void fsdp_ledger_format(const fsdp_ledger_entry_t *entry, char *text,
                        size_t size);

/** A wait of over `seconds` ends all ranks with a message that shows every
 *  rank's last ledger line.  60 at first; 0 means never. */
void fsdp_comm_set_timeout(double seconds);

typedef struct fsdp_comm_counter {
    uint64_t calls;
    uint64_t bytes_sent; /**< by this rank to other ranks */
    double seconds;      /**< spent in start and wait     */
} fsdp_comm_counter_t;

fsdp_comm_counter_t fsdp_comm_counter(const fsdp_comm_t *comm,
                                      fsdp_collective_t kind);
void fsdp_comm_reset_counters(fsdp_comm_t *comm);

#endif
