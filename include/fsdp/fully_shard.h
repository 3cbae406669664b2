/** \file fully_shard.h  Floor 3, fsdp: the subject.
 *
 *  PyTorch: torch/distributed/fsdp/_fully_shard/_fully_shard.py, 2.13.
 *
 *  One call makes one *parameter group*: the module's parameters that no nested
 *  call has taken.  A group is gathered by one all-gather before its module
 *  runs, forward and backward, and its gradients are reduced by one
 *  reduce-scatter.  So call it bottom-up, the root last.
 */
#ifndef FSDP_FULLY_SHARD_H
#define FSDP_FULLY_SHARD_H

#include "fsdp/mesh.h"
#include "fsdp/module.h"

/** reshard_after_forward: free the gathered parameters after the forward and
 *  gather them again for the backward? */
enum {
    FSDP_RESHARD_AUTO = -2, /**< PyTorch's None: yes, but not the root */
    FSDP_RESHARD_TRUE = -1,
    FSDP_RESHARD_FALSE = 0
};

/** PyTorch's keyword arguments; start from fsdp_options_default(). */
typedef struct fsdp_options {
    fsdp_mesh_t *mesh;         /**< borrowed; must be given                   */
    int reshard_after_forward; /**< FSDP_RESHARD_AUTO by default              */
    fsdp_reduce_order_t reduce_order; /**< FSDP_ORDER_TREE by default         */
} fsdp_options_t;

fsdp_options_t fsdp_options_default(void);

/** Shards the parameters of `module`: allocates this rank's rows only, and makes
 *  their initial values.  Errors (the same on all ranks): no mesh, a second call on
 *  the same module, an unknown reshard_after_forward, a parameter that already
 *  has whole storage.  Collective over the mesh. */
fsdp_status_t fully_shard(fsdp_module_t *module, const fsdp_options_t *options);
/** Several modules as one group, gathered when the first of them runs and freed
 *  after the last. */
fsdp_status_t fully_shard_list(fsdp_module_t *const *modules, int num_modules,
                               const fsdp_options_t *options);

/** Divides the module's reduced gradients by `factor` in place of the number of
 *  ranks.  Not recursive.  PyTorch: FSDPModule.set_gradient_divide_factor(). */
fsdp_status_t fsdp_module_set_gradient_divide_factor(fsdp_module_t *module,
                                                     double factor);

/* ---- this rank's part of a parameter ------------------------------------ */

/** What an optimizer, a checkpoint or a verification sees of a parameter.  For
 *  one that fully_shard() did not take, the part is all of it. */
typedef struct fsdp_local {
    void *data;       /**< [rows, row_numel]                                  */
    void *grad;       /**< the same shape; NULL: none                         */
    size_t begin;     /**< first row                                          */
    size_t rows;      /**< may be 0                                           */
    size_t numel;     /**< rows x row_numel                                   */
    size_t padded_numel; /**< ceil(shape[0] / W) x row_numel                  */
    fsdp_comm_t *comm;   /**< ranks it is cut over; NULL: not cut             */
} fsdp_local_t;

/** Reading `grad` completes the sum over micro-batches (see the reduce order).
 *  Not collective. */
fsdp_local_t fsdp_parameter_local(fsdp_parameter_t *parameter);
/** Forgets the gradient, sharded and whole. */
void fsdp_parameter_local_zero_grad(fsdp_parameter_t *parameter);
/** Puts the shards of all ranks together on `root`: `out` has numel elements
 *  there and is unused elsewhere.  `local` is [padded_numel], laid out like
 *  fsdp_local_t's data, whose padding may hold anything; NULL: the data.
 *  Collective over `comm`, which has the same ranks as the mesh. */
void fsdp_parameter_gather(fsdp_parameter_t *parameter, const void *local,
                           fsdp_comm_t *comm, int root, void *out);

/* ---- what happened ------------------------------------------------------ */

typedef enum fsdp_event_kind {
    FSDP_EVENT_UNSHARD,       /**< an all-gather begins                       */
    FSDP_EVENT_WAIT_FOR_UNSHARD, /**< its result is copied out                */
    FSDP_EVENT_RESHARD,       /**< gathered parameters are freed              */
    FSDP_EVENT_REDUCE_SCATTER,
    FSDP_EVENT_POST_BACKWARD, /**< a post-backward returns                    */
    FSDP_EVENT_KINDS
} fsdp_event_kind_t;

typedef enum fsdp_training_state {
    FSDP_STATE_IDLE,
    FSDP_STATE_FORWARD,
    FSDP_STATE_PRE_BACKWARD,
    FSDP_STATE_POST_BACKWARD
} fsdp_training_state_t;

typedef struct fsdp_event {
    fsdp_event_kind_t kind;
    const char *unit; /**< the group's name; "" is the root's. Borrowed       */
    fsdp_training_state_t state;
} fsdp_event_t;

/** Called at each event; PyTorch's tests patch its methods for the same end. */
void fsdp_set_event_hook(void (*hook)(void *context, const fsdp_event_t *event),
                         void *context);

/** What a verification may look at while it exists; each may be NULL. */
typedef struct fsdp_observer {
    void *context;
    /** after each all-gather: the whole parameter, as this rank has it */
    void (*gathered)(void *context, fsdp_parameter_t *parameter,
                     const void *data);
    /** after each reduction: this rank's rows of the reduced and divided
     *  gradient of one backward */
    void (*reduced)(void *context, fsdp_parameter_t *parameter,
                    const void *grad);
} fsdp_observer_t;

/** NULL takes it away.  The struct is copied. */
void fsdp_set_observer(const fsdp_observer_t *observer);

/** The unit that gathers the parameter; NULL if it is not managed. */
const char *fsdp_parameter_unit(const fsdp_parameter_t *parameter);

#endif
