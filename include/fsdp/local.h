/** \file local.h  Floor 3, fsdp: this rank's part of a parameter.
 *
 *  PyTorch: DTensor.to_local(), DTensor.full_tensor().
 */
#ifndef FSDP_LOCAL_H
#define FSDP_LOCAL_H

#include "fsdp/comm.h"
#include "fsdp/layout.h"

/** What an optimizer, a checkpoint or a verification sees of a parameter.  For
 *  one that is not managed, the part is all of it. */
typedef struct fsdp_local {
    void *data; /**< [padded_numel] of the parameter's dtype; the first `numel`
                     are the parameter's, in the order of `layout`; the rest
                     is zero                                                  */
    void *grad;          /**< the same; NULL: none                            */
    size_t numel;        /**< may be 0                                        */
    size_t padded_numel; /**< elements of `data`                              */
    fsdp_layout_t layout;
    fsdp_comm_t *comm; /**< ranks it is cut over; NULL: not cut               */
} fsdp_local_t;

/** Reading `grad` completes the sum over micro-batches (see the reduce order).
 *  Not collective. */
fsdp_local_t fsdp_parameter_local(fsdp_parameter_t *parameter);
/** Forgets the gradient, sharded and whole. */
void fsdp_parameter_local_zero_grad(fsdp_parameter_t *parameter);
/** The unit that gathers the parameter; NULL if it is not managed. */
const char *fsdp_parameter_unit(const fsdp_parameter_t *parameter);

/** Puts the parts of all ranks together on `root`: `out` has the elements of the
 *  larger tensor there and is unused elsewhere.  `local` is laid out like
 *  fsdp_local_t's data; NULL: the data.  Collective over `comm`, whose ranks keep
 *  all of it among them (all ranks, usually).
 *  PyTorch: DTensor.full_tensor(). */
void fsdp_parameter_gather(fsdp_parameter_t *parameter, const void *local,
                           fsdp_comm_t *comm, int root, void *out);

/* ---- for those who manage parameters ------------------------------------- */

/** What fully_shard() and FSDP1 each know how to do with a parameter of theirs. */
typedef struct fsdp_manager {
    fsdp_local_t (*local)(fsdp_parameter_t *parameter);
    void (*zero_grad)(fsdp_parameter_t *parameter);
    const char *(*unit)(const fsdp_parameter_t *parameter);
} fsdp_manager_t;

/** The first member of whatever parameter->managed points to. */
typedef struct fsdp_managed {
    const fsdp_manager_t *manager;
} fsdp_managed_t;

#endif
