#include "fsdp/tensor.h"

#include <stdio.h>
#include <string.h>

#include "fsdp/status.h"

struct fsdp_storage {
    long users;
    void *data;
};

static size_t
shape_numel(int ndim, const size_t *shape)
{
    size_t numel = 1;
    for (int d = 0; d < ndim; d++)
        FSDP_CHECK(!__builtin_mul_overflow(numel, shape[d], &numel),
                   "a tensor with more elements than a size_t counts");
    return numel;
}

/* A tensor without memory. */
static fsdp_tensor_t *
tensor_alloc(fsdp_dtype_t dtype, int ndim, const size_t *shape)
{
    FSDP_CHECK(ndim >= 0 && ndim <= FSDP_MAX_DIMS, "%d dimensions", ndim);
    FSDP_CHECK(dtype != FSDP_DTYPE_NONE, "a tensor without an element type");
    fsdp_tensor_t *tensor = fsdp_calloc(FSDP_MEM_OTHER, sizeof *tensor);
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    for (int d = 0; d < ndim; d++)
        tensor->shape[d] = shape[d];
    return tensor;
}

fsdp_tensor_t *
fsdp_tensor_create(fsdp_memory_category_t category, fsdp_dtype_t dtype,
                   int ndim, const size_t *shape)
{
    fsdp_tensor_t *tensor = tensor_alloc(dtype, ndim, shape);
    tensor->storage = fsdp_alloc(FSDP_MEM_OTHER, sizeof *tensor->storage);
    tensor->storage->users = 1;
    tensor->storage->data = fsdp_alloc(category, fsdp_tensor_bytes(tensor));
    tensor->data = tensor->storage->data;
    return tensor;
}

fsdp_tensor_t *
fsdp_tensor_borrow(fsdp_dtype_t dtype, int ndim, const size_t *shape,
                   void *data)
{
    fsdp_tensor_t *tensor = tensor_alloc(dtype, ndim, shape);
    tensor->data = data;
    return tensor;
}

fsdp_tensor_t *
fsdp_tensor_view(const fsdp_tensor_t *tensor, size_t offset, int ndim,
                 const size_t *shape)
{
    size_t have = fsdp_tensor_numel(tensor);
    fsdp_tensor_t *view = tensor_alloc(tensor->dtype, ndim, shape);
    size_t want = fsdp_tensor_numel(view);
    FSDP_CHECK(offset <= have && want <= have - offset,
               "a view of %zu elements from element %zu of %zu", want, offset,
               have);
    if (tensor->data != NULL)
        view->data =
            (char *)tensor->data + offset * fsdp_dtype_size(tensor->dtype);
    view->storage = tensor->storage;
    if (view->storage != NULL)
        view->storage->users++;
    return view;
}

fsdp_tensor_t *
fsdp_tensor_rows(const fsdp_tensor_t *tensor, size_t begin, size_t end)
{
    FSDP_CHECK(tensor->ndim >= 1, "rows of a scalar");
    FSDP_CHECK(begin <= end && end <= tensor->shape[0],
               "rows %zu to %zu of %zu", begin, end, tensor->shape[0]);
    size_t shape[FSDP_MAX_DIMS];
    memcpy(shape, tensor->shape, sizeof shape);
    shape[0] = end - begin;
    return fsdp_tensor_view(tensor, begin * fsdp_tensor_row_numel(tensor),
                            tensor->ndim, shape);
}

fsdp_tensor_t *
fsdp_tensor_clone(fsdp_memory_category_t category, const fsdp_tensor_t *tensor)
{
    FSDP_CHECK(tensor->data != NULL, "the clone of a tensor without storage");
    fsdp_tensor_t *clone = fsdp_tensor_create(category, tensor->dtype,
                                              tensor->ndim, tensor->shape);
    memcpy(clone->data, tensor->data, fsdp_tensor_bytes(tensor));
    return clone;
}

void
fsdp_tensor_release(fsdp_tensor_t *tensor)
{
    fsdp_storage_t *storage = tensor->storage;
    tensor->storage = NULL;
    tensor->data = NULL;
    if (storage == NULL || --storage->users > 0)
        return;
    fsdp_free(storage->data);
    fsdp_free(storage);
}

void
fsdp_tensor_share(fsdp_tensor_t *tensor, const fsdp_tensor_t *from)
{
    FSDP_CHECK(tensor->data == NULL && from->data != NULL &&
                   tensor->dtype == from->dtype &&
                   fsdp_tensor_numel(tensor) == fsdp_tensor_numel(from),
               "a tensor shares with another of its type and size");
    tensor->data = from->data;
    tensor->storage = from->storage;
    if (tensor->storage != NULL)
        tensor->storage->users++;
}

void
fsdp_tensor_destroy(fsdp_tensor_t **tensor)
{
    if (*tensor == NULL)
        return;
    fsdp_tensor_release(*tensor);
    fsdp_free(*tensor);
    *tensor = NULL;
}

size_t
fsdp_tensor_numel(const fsdp_tensor_t *tensor)
{
    return shape_numel(tensor->ndim, tensor->shape);
}

size_t
fsdp_tensor_bytes(const fsdp_tensor_t *tensor)
{
    size_t bytes;
    FSDP_CHECK(!__builtin_mul_overflow(fsdp_tensor_numel(tensor),
                                       fsdp_dtype_size(tensor->dtype), &bytes),
               "a tensor with more bytes than a size_t counts");
    return bytes;
}

size_t
fsdp_tensor_row_numel(const fsdp_tensor_t *tensor)
{
    return tensor->ndim == 0 ? 1
                             : shape_numel(tensor->ndim - 1, tensor->shape + 1);
}

bool
fsdp_tensor_same_shape(const fsdp_tensor_t *a, const fsdp_tensor_t *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

void
fsdp_tensor_zero(fsdp_tensor_t *tensor)
{
    if (fsdp_tensor_numel(tensor) > 0)
        memset(tensor->data, 0, fsdp_tensor_bytes(tensor));
}

void
fsdp_tensor_format_shape(const fsdp_tensor_t *tensor, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < tensor->ndim; d++)
        used += (size_t)snprintf(text + (used < size ? used : size),
                                 used < size ? size - used : 0, "%s%zu",
                                 d > 0 ? ", " : "", tensor->shape[d]);
    snprintf(text + (used < size ? used : size), used < size ? size - used : 0,
             "]");
}
