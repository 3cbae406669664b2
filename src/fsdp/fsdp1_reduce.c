/* PyTorch: torch/distributed/fsdp/_runtime_utils.py, _reduce_grad() and
 * _reduce_grad_no_shard().
 *
 *     grad [n] --cast--> reduce_dtype --/ pre--> reduce-scatter --> [c]
 *       --> all-reduce over the replicas --/ post--> cast --> added
 *
 * NO_SHARD: one all-reduce in place of the two.  One reduction is under way at
 * a time: the next one ends it, and the end of the backward the last one. */
#include <string.h>

#include "fsdp/fault.h"
#include "fsdp/fsdp1_state.h"
#include "fsdp/fsdp_common.h"
#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "tensor/vector.h"

static const char *
ledger_unit(const fsdp_flat_param_handle_t *h)
{
    return h->unit[0] != '\0' ? h->unit : "(root)";
}

/* PyTorch: _div_if_needed(). */
static void
div_if_needed(const fsdp_flat_param_handle_t *h, void *x, double divisor,
              size_t numel)
{
    if (divisor != 1.0)
        fsdp_vector_divide(h->reduce_dtype, x, divisor, numel);
}

/* `from` is freed, unless it has the type already. */
static void *
converted(fsdp_memory_category_t category, fsdp_dtype_t from_dtype, void *from,
          fsdp_dtype_t to_dtype, size_t numel)
{
    if (from_dtype == to_dtype)
        return from;
    void *to = fsdp_alloc(category, numel * fsdp_dtype_size(to_dtype));
    fsdp_convert(from_dtype, from, to_dtype, to, numel);
    fsdp_free(from);
    return to;
}

/* ---- the start ----------------------------------------------------------- */

static void
start_all_reduce(fsdp1_reduction_t *r)
{
    fsdp_flat_param_handle_t *h = r->handle;
    if (fsdp_comm_size(h->comm) == 1)
        return;
    fsdp_emit_event(FSDP_EVENT_ALL_REDUCE, h->unit, h->training_state);
    r->work =
        fsdp_all_reduce_start(h->comm, ledger_unit(h), h->reduce_dtype,
                              FSDP_SUM, h->reduce_order, r->input, h->numel);
}

static void
start_reduce_scatter(fsdp1_reduction_t *r)
{
    fsdp_flat_param_handle_t *h = r->handle;
    fsdp_emit_event(FSDP_EVENT_REDUCE_SCATTER, h->unit, h->training_state);
    r->output =
        fsdp_alloc(FSDP_MEM_COMM, h->chunk * fsdp_dtype_size(h->reduce_dtype));
    r->work = fsdp_reduce_scatter_start(h->comm, ledger_unit(h),
                                        h->reduce_dtype, h->reduce_order,
                                        r->input, r->output, h->chunk);
}

void
fsdp1_reduce_grad(fsdp1_state_t *state, void *grad)
{
    fsdp_flat_param_handle_t *h = state->handle;
    fsdp1_reduction_t *r = &state->shared->reduction;
    fsdp1_reduce_grad_finish(state->shared);
    *r = (fsdp1_reduction_t){.handle = h, .training_state = h->training_state};
    r->input = converted(FSDP_MEM_UNSHARDED_GRAD, h->param_dtype, grad,
                         h->reduce_dtype, h->numel);
    div_if_needed(h, r->input, h->predivide, h->numel);
    if (fsdp_flat_param_uses_sharded_strategy(h))
        start_reduce_scatter(r);
    else
        start_all_reduce(r);
}

/* ---- the end ------------------------------------------------------------- */

static void
all_reduce_over_replicas(const fsdp1_reduction_t *r)
{
    const fsdp_flat_param_handle_t *h = r->handle;
    if (h->replicate == NULL || fsdp_comm_size(h->replicate) == 1 ||
        fsdp_fault(FSDP_FAULT_SKIP_ALL_REDUCE))
        return;
    fsdp_emit_event(FSDP_EVENT_ALL_REDUCE, h->unit, r->training_state);
    fsdp_all_reduce(h->replicate, ledger_unit(h), h->reduce_dtype, FSDP_SUM,
                    h->reduce_order, r->output, h->chunk);
}

/* ZeRO-1 keeps the whole: the rank's own gradient, with its chunk reduced. */
static void *
into_whole(const fsdp1_reduction_t *r)
{
    const fsdp_flat_param_handle_t *h = r->handle;
    size_t size = fsdp_dtype_size(h->dtype);
    char *whole = fsdp_alloc(FSDP_MEM_GRAD_SHARD, h->numel * size);
    fsdp_convert(h->reduce_dtype, r->input, h->dtype, whole, h->numel);
    fsdp_convert(h->reduce_dtype, r->output, h->dtype,
                 whole + fsdp_flat_param_grad_begin(h) * size, h->chunk);
    return whole;
}

static void *
reduced_grad(const fsdp1_reduction_t *r)
{
    const fsdp_flat_param_handle_t *h = r->handle;
    if (h->strategy == FSDP_HANDLE_ZERO1)
        return into_whole(r);
    void *grad =
        fsdp_alloc(FSDP_MEM_GRAD_SHARD, h->chunk * fsdp_dtype_size(h->dtype));
    fsdp_convert(h->reduce_dtype, r->output != NULL ? r->output : r->input,
                 h->dtype, grad, h->chunk);
    return grad;
}

/* What an observer may see of each parameter. */
static void
show_reduced(const fsdp_flat_param_handle_t *h, const char *grad)
{
    size_t begin, count, at, size = fsdp_dtype_size(h->dtype);
    for (int i = 0; i < h->num_views; i++) {
        const fsdp_flat_view_t *view = &h->view[i];
        fsdp_flat_view_in_shard(view, h->rank, &begin, &count, &at);
        if (view->parameter->requires_grad)
            fsdp_emit_reduced(view->parameter,
                              grad +
                                  (fsdp_flat_param_grad_begin(h) + at) * size);
    }
}

void
fsdp1_reduce_grad_finish(fsdp1_shared_t *shared)
{
    fsdp1_reduction_t *r = &shared->reduction;
    fsdp_flat_param_handle_t *h = r->handle;
    if (h == NULL)
        return;
    fsdp_work_wait(&r->work);
    if (r->output != NULL)
        all_reduce_over_replicas(r);
    if (!fsdp_fault(FSDP_FAULT_SKIP_POST_DIVIDE))
        div_if_needed(h, r->output != NULL ? r->output : r->input,
                      h->postdivide, h->chunk);
    void *grad = reduced_grad(r);
    show_reduced(h, grad);
    fsdp_flat_param_add_reduced(h, grad);
    fsdp_free(r->input);
    fsdp_free(r->output);
    r->handle = NULL;
}
