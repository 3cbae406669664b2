/** \file parameter.h  Floor 2, nn: a parameter, which is not always there.
 *
 *  PyTorch: torch.nn.Parameter.
 *
 *  A parameter knows its name, shape and how its initial values are made, and
 *  has no storage when it is created (PyTorch's meta device).  Either
 *  fully_shard() takes it over, gives each rank its rows and lends the whole
 *  while a module runs; or, unmanaged, it is made whole when first used.
 */
#ifndef FSDP_PARAMETER_H
#define FSDP_PARAMETER_H

#include <stdint.h>

#include "fsdp/tensor.h"

typedef enum fsdp_init_kind {
    FSDP_INIT_ZEROS,
    FSDP_INIT_ONES,
    FSDP_INIT_NORMAL, /**< mean 0, standard deviation `scale` */
    FSDP_INIT_UNIFORM /**< in (-scale, scale)                 */
} fsdp_init_kind_t;

typedef struct fsdp_parameter {
    char *name; /**< full name, "transformer.h.0.mlp.c_fc.weight"; owned      */
    fsdp_dtype_t dtype;
    int ndim; /**< at least 1 */
    size_t shape[FSDP_MAX_DIMS];
    bool requires_grad;    /**< false: frozen                                 */
    fsdp_init_kind_t init; /**< drawn from (seed, name, element)              */
    double init_scale;
    uint64_t seed;

    /* Tensor parallelism, experts: `shape` is one part of a larger tensor, which
     * is cut into equal parts along part_dim.  part_dim -1 and num_parts > 1:
     * each of the num_parts ranks has all of it.  part_groups > 1: part_dim is
     * so many pieces of one length, each cut by itself (GPT-2's q, k and v,
     * side by side in one weight), and the part is its share of each. */
    int part_dim, num_parts, part; /**< -1, 1, 0 by default                   */
    int part_groups;               /**< 1 by default                          */

    void *data; /**< all of it, or NULL while it is not there; see below      */
    fsdp_dtype_t data_dtype; /**< of `data` and of new gradients: `dtype`, or
                                  the param_dtype of a mixed-precision policy */
    fsdp_tensor_t *grad;     /**< the whole gradient, added up over backwards;
                              NULL: none yet.  Owned                          */
    fsdp_tensor_t *incoming; /**< during a backward: the sum over uses so far */
    int awaited_uses;        /**< uses whose gradient is still to come        */
    bool data_owned;         /**< unmanaged and made whole                    */
    int num_optimizers;      /**< that hold it; none may before it is sharded */
    struct fsdp_managed *managed; /**< by fully_shard() or FSDP1: see
                                       local.h; NULL: not.  Borrowed          */
} fsdp_parameter_t;

/** The caller owns it (a module usually: fsdp_module_add_parameter()). */
fsdp_parameter_t *fsdp_parameter_create(const char *name, fsdp_dtype_t dtype,
                                        int ndim, const size_t *shape,
                                        fsdp_init_kind_t init, double scale,
                                        uint64_t seed);
void fsdp_parameter_destroy(fsdp_parameter_t **parameter);

size_t fsdp_parameter_numel(const fsdp_parameter_t *parameter);
size_t fsdp_parameter_row_numel(const fsdp_parameter_t *parameter);

/** The shape of the tensor that this is a part of: `shape` unless it is one. */
void fsdp_parameter_whole_shape(const fsdp_parameter_t *parameter,
                                size_t shape[FSDP_MAX_DIMS]);
/** Where elements [begin, ...) of the part lie in the larger tensor: returns the
 *  row-major index there of element `begin` and sets `count` to how many follow
 *  it without a gap.  The identity unless it is a part. */
size_t fsdp_parameter_whole_element(const fsdp_parameter_t *parameter,
                                    size_t begin, size_t *count);

/** The whole parameter, in data_dtype, for reading.  Ends the program with "parameter NAME
 *  used while SHARDED" if it is managed and not gathered now; makes it whole
 *  from its initial values if unmanaged and new. */
const void *fsdp_parameter_data(fsdp_parameter_t *parameter);

/** Initial values of elements [begin, begin + count), in its dtype.  Any rank
 *  can make any part.  Keyed by the element's place in the whole tensor, so a
 *  part gets what the whole would have there. */
void fsdp_parameter_init_range(const fsdp_parameter_t *parameter, size_t begin,
                               size_t count, void *out);

/** A tensor for a gradient of it, in data_dtype, contents undefined; the caller
 *  owns it. */
fsdp_tensor_t *fsdp_parameter_new_grad(const fsdp_parameter_t *parameter);

/** Called by an operator's backward, once per use: hands over (and owns) one
 *  use's gradient.  Uses of one backward are summed first; when the last has
 *  come the sum is added to `grad`.  PyTorch: AccumulateGrad. */
void fsdp_parameter_add_grad(fsdp_parameter_t *parameter, fsdp_tensor_t *grad);

/** Drops what a backward that was given up has left. */
void fsdp_parameter_forget_backward(fsdp_parameter_t *parameter);

/** Frees `grad`; PyTorch: Optimizer.zero_grad(set_to_none=True). */
void fsdp_parameter_zero_grad(fsdp_parameter_t *parameter);

#endif
