/** \file tensor.h  Floor 1, tensor: contiguous arrays with a shape.
 *
 *  PyTorch: torch.Tensor, as far as FSDP needs it: row-major, contiguous, up to
 *  four dimensions; a view of whole rows is again such a tensor.
 */
#ifndef FSDP_TENSOR_H
#define FSDP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

#include "fsdp/dtype.h"
#include "fsdp/memory.h"

enum { FSDP_MAX_DIMS = 4 };

/** Reference-counted memory, shared by a tensor and its views. */
typedef struct fsdp_storage fsdp_storage_t;

typedef struct fsdp_tensor {
    fsdp_dtype_t dtype;
    int ndim;                     /**< 0 for a scalar                          */
    size_t shape[FSDP_MAX_DIMS];  /**< the first `ndim` count                  */
    void *data;                   /**< NULL: no storage (PyTorch's meta)       */
    fsdp_storage_t *storage;      /**< NULL if `data` is borrowed              */
    bool requires_grad;           /**< set by the tape                         */
    struct fsdp_node *grad_fn;    /**< the tape's node that made it; borrowed  */
    int output_index;             /**< which of that node's outputs it is      */
} fsdp_tensor_t;

/** A new tensor with storage of its own, contents undefined; the caller owns
 *  it.  `shape` has `ndim` entries, zeros allowed. */
fsdp_tensor_t *fsdp_tensor_create(fsdp_memory_category_t category,
                                  fsdp_dtype_t dtype, int ndim,
                                  const size_t *shape);
/** A tensor over memory that it does not own; `data` must outlive it. */
fsdp_tensor_t *fsdp_tensor_borrow(fsdp_dtype_t dtype, int ndim,
                                  const size_t *shape, void *data);
/** Another tensor on the same storage (borrowed stays borrowed), with the
 *  shape given; numel must not be larger than what is left after `offset`
 *  elements.  The caller owns the view; the storage lives until its last user
 *  goes. */
fsdp_tensor_t *fsdp_tensor_view(const fsdp_tensor_t *tensor, size_t offset,
                                int ndim, const size_t *shape);
/** Rows [begin, end) of dim 0, as a view. */
fsdp_tensor_t *fsdp_tensor_rows(const fsdp_tensor_t *tensor, size_t begin,
                                size_t end);
/** A copy with storage of its own. */
fsdp_tensor_t *fsdp_tensor_clone(fsdp_memory_category_t category,
                                 const fsdp_tensor_t *tensor);
/** Drops this tensor's hold on its storage; `data` becomes NULL. */
void fsdp_tensor_release(fsdp_tensor_t *tensor);
/** Gives a tensor whose hold was dropped the storage of `from`, which has its
 *  type and as many elements; both hold it then. */
void fsdp_tensor_share(fsdp_tensor_t *tensor, const fsdp_tensor_t *from);
/** Frees the tensor (and its storage, if it is the last user); nulls. */
void fsdp_tensor_destroy(fsdp_tensor_t **tensor);

size_t fsdp_tensor_numel(const fsdp_tensor_t *tensor);
size_t fsdp_tensor_bytes(const fsdp_tensor_t *tensor);
/** numel / shape[0]; 1 for a scalar; computed from the shape, so it is right
 *  for shape[0] = 0 too. */
size_t fsdp_tensor_row_numel(const fsdp_tensor_t *tensor);
bool fsdp_tensor_same_shape(const fsdp_tensor_t *a, const fsdp_tensor_t *b);
/** Element `i` in row-major order as a double (exact for each type but int64). */
double fsdp_tensor_get(const fsdp_tensor_t *tensor, size_t i);
/** Stores `value` rounded to the tensor's type. */
void fsdp_tensor_set(fsdp_tensor_t *tensor, size_t i, double value);
void fsdp_tensor_zero(fsdp_tensor_t *tensor);
/** "[50257, 768]" */
void fsdp_tensor_format_shape(const fsdp_tensor_t *tensor, char *text,
                              size_t size);

/** Converts n elements between any two floating types (or copies equal types);
 *  round to nearest even; NaN stays NaN, overflow becomes infinity, subnormals
 *  are kept.  PyTorch: Tensor.to(dtype). */
void fsdp_convert(fsdp_dtype_t from, const void *in, fsdp_dtype_t to, void *out,
                  size_t n);

/** Threads that kernels of this process use (OpenMP); bits do not depend on
 *  it.  At least 1. */
void fsdp_set_num_threads(int threads);
int fsdp_get_num_threads(void);

#endif
