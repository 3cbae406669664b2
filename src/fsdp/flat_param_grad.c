/* PyTorch: torch/distributed/fsdp/_flat_param.py: the gradients of a flat
 * parameter, and what others see of one parameter. */
#include <string.h>

#include "fsdp/flat_param.h"
#include "fsdp/fsdp_common.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"
#include "fsdp/tensor.h"

/* ---- whole gradients ----------------------------------------------------- */

void *
fsdp_flat_param_take_grads(fsdp_flat_param_handle_t *h)
{
    bool any = false;
    for (int i = 0; i < h->num_views; i++)
        any |= h->view[i].parameter->grad != NULL;
    if (!any)
        return NULL;
    size_t size = fsdp_dtype_size(h->param_dtype);
    char *flat = fsdp_calloc(FSDP_MEM_UNSHARDED_GRAD, h->numel * size);
    for (int i = 0; i < h->num_views; i++) {
        fsdp_parameter_t *p = h->view[i].parameter;
        fsdp_emit_unreduced(p);
        if (p->grad != NULL)
            memcpy(flat + h->view[i].offset * size, p->grad->data,
                   h->view[i].numel * size);
        fsdp_parameter_zero_grad(p);
    }
    return flat;
}

/* PyTorch: _reset_is_grad_none(). */
static void
reset_is_grad_none(fsdp_flat_param_handle_t *h)
{
    for (int i = 0; i < h->num_views; i++)
        h->view[i].is_grad_none = !h->view[i].parameter->requires_grad;
}

void
fsdp_flat_param_accumulate(fsdp_flat_param_handle_t *h, void *grad)
{
    fsdp_grad_sum_add(&h->unsharded_grad, h->param_dtype, h->reduce_order, grad,
                      h->numel);
    reset_is_grad_none(h);
}

void *
fsdp_flat_param_take_accumulated(fsdp_flat_param_handle_t *h)
{
    void *sum =
        fsdp_grad_sum_read(&h->unsharded_grad, h->param_dtype, h->numel);
    h->unsharded_grad.count = 0; /* the caller's now */
    return sum;
}

/* ---- reduced gradients --------------------------------------------------- */

size_t
fsdp_flat_param_grad_numel(const fsdp_flat_param_handle_t *h)
{
    return h->strategy == FSDP_HANDLE_ZERO1 ? h->numel : h->chunk;
}

size_t
fsdp_flat_param_grad_begin(const fsdp_flat_param_handle_t *h)
{
    return h->strategy == FSDP_HANDLE_ZERO1 ? (size_t)h->rank * h->chunk : 0;
}

/* Narrow, the sum so far becomes one term again. */
static void
widen(fsdp_flat_param_handle_t *h)
{
    size_t numel = fsdp_flat_param_grad_numel(h);
    if (h->low_grad == NULL)
        return;
    void *wide =
        fsdp_alloc(FSDP_MEM_GRAD_SHARD, numel * fsdp_dtype_size(h->dtype));
    fsdp_convert(fsdp_flat_param_keep_dtype(h), h->low_grad, h->dtype, wide,
                 numel);
    fsdp_free(h->low_grad);
    h->low_grad = NULL;
    fsdp_grad_sum_add(&h->sharded_grad, h->dtype, h->reduce_order, wide, numel);
}

void *
fsdp_flat_param_reduced_grad(fsdp_flat_param_handle_t *h)
{
    widen(h);
    return fsdp_grad_sum_read(&h->sharded_grad, h->dtype,
                              fsdp_flat_param_grad_numel(h));
}

void
fsdp_flat_param_add_reduced(fsdp_flat_param_handle_t *h, void *grad)
{
    widen(h);
    fsdp_grad_sum_add(&h->sharded_grad, h->dtype, h->reduce_order, grad,
                      fsdp_flat_param_grad_numel(h));
    reset_is_grad_none(h);
    h->gathered_since_update = !fsdp_flat_param_keeps_whole(h);
}

/* PyTorch keeps what NO_SHARD has reduced in the type of the reduction. */
fsdp_dtype_t
fsdp_flat_param_keep_dtype(const fsdp_flat_param_handle_t *h)
{
    return fsdp_flat_param_uses_sharded_strategy(h) ? h->param_dtype
                                                    : h->reduce_dtype;
}

void
fsdp_flat_param_prepare_gradient_for_optim(fsdp_flat_param_handle_t *h)
{
    fsdp_dtype_t keep = fsdp_flat_param_keep_dtype(h);
    size_t numel = fsdp_flat_param_grad_numel(h);
    if (!h->keep_low_precision_grads || keep == h->dtype ||
        h->sharded_grad.count == 0)
        return;
    void *sum = fsdp_flat_param_reduced_grad(h);
    h->low_grad =
        fsdp_alloc(FSDP_MEM_GRAD_SHARD, numel * fsdp_dtype_size(keep));
    fsdp_convert(h->dtype, sum, keep, h->low_grad, numel);
    fsdp_grad_sum_clear(&h->sharded_grad);
}

/* ---- what others see ----------------------------------------------------- */

static fsdp_layout_t
layout_of(const fsdp_flat_view_t *view)
{
    const fsdp_flat_param_handle_t *h = view->handle;
    fsdp_layout_t layout = fsdp_layout_whole(view->parameter);
    if (!fsdp_flat_param_uses_sharded_strategy(h))
        return layout;
    layout.kind = FSDP_LAYOUT_FLAT;
    layout.flat_offset = view->offset;
    layout.flat_chunk = h->chunk;
    layout.num_ranks = h->world_size;
    layout.rank = h->rank;
    layout.primary &= h->primary;
    return layout;
}

static fsdp_local_t
local_of(fsdp_parameter_t *parameter)
{
    fsdp_flat_view_t *view = fsdp_flat_view_of(parameter);
    fsdp_flat_param_handle_t *h = view->handle;
    size_t size = fsdp_dtype_size(h->dtype), begin, count, at;
    fsdp_flat_view_in_shard(view, h->rank, &begin, &count, &at);
    char *grad = view->is_grad_none ? NULL : fsdp_flat_param_reduced_grad(h);
    if (grad != NULL)
        grad += (fsdp_flat_param_grad_begin(h) + at) * size;
    return (fsdp_local_t){
        .data = (char *)h->local_shard + at * size,
        .grad = grad,
        .numel = count,
        .padded_numel = count,
        .layout = layout_of(view),
        .comm = fsdp_flat_param_uses_sharded_strategy(h) ? h->comm : NULL,
    };
}

/* One parameter's part of the sums becomes zero. */
static void
zero_part(fsdp_flat_param_handle_t *h, const fsdp_flat_view_t *view)
{
    size_t begin, count, at;
    fsdp_flat_view_in_shard(view, h->rank, &begin, &count, &at);
    char *sum = fsdp_flat_param_reduced_grad(h);
    if (sum != NULL)
        memset(sum + (fsdp_flat_param_grad_begin(h) + at) *
                         fsdp_dtype_size(h->dtype),
               0, count * fsdp_dtype_size(h->dtype));
    size_t size = fsdp_dtype_size(h->param_dtype);
    sum = fsdp_grad_sum_read(&h->unsharded_grad, h->param_dtype, h->numel);
    if (sum != NULL)
        memset(sum + view->offset * size, 0, view->numel * size);
}

/* The gradient of a flat parameter goes when nobody wants a part of it.
 * PyTorch: _reset_flat_param_grad_info_if_needed(). */
static void
zero_grad(fsdp_parameter_t *parameter)
{
    fsdp_flat_view_t *view = fsdp_flat_view_of(parameter);
    fsdp_flat_param_handle_t *h = view->handle;
    bool all = true;
    view->is_grad_none = true;
    for (int i = 0; i < h->num_views; i++)
        all &= h->view[i].is_grad_none;
    if (!all) {
        zero_part(h, view);
        return;
    }
    h->gather_forgotten |= !h->gathered_since_update;
    fsdp_grad_sum_clear(&h->unsharded_grad);
    fsdp_grad_sum_clear(&h->sharded_grad);
    fsdp_free(h->low_grad);
    h->low_grad = NULL;
}

static const char *
unit_of(const fsdp_parameter_t *parameter)
{
    return fsdp_flat_view_of(parameter)->handle->unit;
}

const fsdp_manager_t fsdp_flat_view_manager = {local_of, zero_grad, unit_of};
