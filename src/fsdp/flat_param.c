/* PyTorch: torch/distributed/fsdp/_flat_param.py: laying out and cutting; what
 * happens at run time is in flat_param_unshard.c, gradients are in
 * flat_param_grad.c. */
#include "fsdp/flat_param.h"

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/tensor.h"

enum { ALIGNMENT = 16 /* bytes */ };

/* In what lies between aligned parameters, and after them: seen by nobody, so
 * that it is known where it is seen. */
static const double padding_value = 42.0;

static size_t
min(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool
fsdp_flat_param_uses_sharded_strategy(const fsdp_flat_param_handle_t *handle)
{
    return handle->strategy != FSDP_HANDLE_NO_SHARD;
}

bool
fsdp_flat_param_keeps_whole(const fsdp_flat_param_handle_t *handle)
{
    return handle->strategy == FSDP_HANDLE_ZERO1 ||
           handle->strategy == FSDP_HANDLE_ZERO2;
}

bool
fsdp_flat_param_reshards_after_forward(const fsdp_flat_param_handle_t *handle)
{
    return handle->strategy == FSDP_HANDLE_FULL_SHARD ||
           handle->strategy == FSDP_HANDLE_HYBRID_SHARD;
}

/* ---- laying out ---------------------------------------------------------- */

static size_t
round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Alignment counts in the type that is gathered, so that what operators read is
 * aligned.  PyTorch: _init_flat_param_and_metadata(), _get_aligned_numel(). */
static void
lay_out(fsdp_flat_param_handle_t *h, fsdp_parameter_t *const *parameters,
        int count)
{
    size_t aligned =
        h->use_orig_params ? ALIGNMENT / fsdp_dtype_size(h->param_dtype) : 1;
    h->num_views = count;
    h->view = fsdp_calloc(FSDP_MEM_OTHER, (size_t)count * sizeof *h->view);
    for (int i = 0; i < count; i++) {
        h->numel = round_up(h->numel, aligned);
        h->view[i] = (fsdp_flat_view_t){
            .managed = {&fsdp_flat_view_manager},
            .parameter = parameters[i],
            .handle = h,
            .offset = h->numel,
            .numel = fsdp_parameter_numel(parameters[i]),
            .is_grad_none = true,
        };
        h->numel += h->view[i].numel;
        h->requires_grad |= parameters[i]->requires_grad;
    }
}

/* With aligned parameters PyTorch pads NO_SHARD for its ranks too. */
static void
cut(fsdp_flat_param_handle_t *h)
{
    size_t ranks = (size_t)h->world_size;
    if (h->use_orig_params && h->replicate == NULL)
        ranks = (size_t)fsdp_comm_size(h->comm);
    h->numel = round_up(h->numel, ranks);
    h->chunk = h->numel / (size_t)h->world_size;
}

void
fsdp_flat_view_in_shard(const fsdp_flat_view_t *view, int rank, size_t *begin,
                        size_t *count, size_t *in_shard)
{
    size_t from = (size_t)rank * view->handle->chunk;
    size_t to = from + view->handle->chunk;
    size_t first = view->offset > from ? view->offset : from;
    size_t last = min(view->offset + view->numel, to);
    *count = last > first ? last - first : 0;
    *begin = *count > 0 ? first - view->offset : 0;
    *in_shard = *count > 0 ? first - from : 0;
}

fsdp_flat_view_t *
fsdp_flat_view_of(const fsdp_parameter_t *parameter)
{
    return parameter->managed != NULL &&
                   parameter->managed->manager == &fsdp_flat_view_manager
               ? (fsdp_flat_view_t *)parameter->managed
               : NULL;
}

/* ---- initial values ------------------------------------------------------ */

static void
make_padding(const fsdp_flat_param_handle_t *h, char *out)
{
    size_t size = fsdp_dtype_size(h->dtype);
    double value = h->use_orig_params ? padding_value : 0.0;
    for (size_t i = 0; i < h->chunk; i++)
        fsdp_convert(FSDP_FP64, &value, h->dtype, out + i * size, 1);
}

/* The chunk of any rank. */
static void
make_chunk(const fsdp_flat_param_handle_t *h, const fsdp1_options_t *options,
           int rank, char *out)
{
    size_t size = fsdp_dtype_size(h->dtype), begin, count, at;
    make_padding(h, out);
    for (int i = 0; i < h->num_views; i++) {
        const fsdp_parameter_t *p = h->view[i].parameter;
        fsdp_flat_view_in_shard(&h->view[i], rank, &begin, &count, &at);
        if (count == 0)
            continue;
        if (options->param_init_fn != NULL)
            options->param_init_fn(options->param_init_context, p, begin, count,
                                   out + at * size);
        else
            fsdp_parameter_init_range(p, begin, count, out + at * size);
    }
}

/* Rank 0 makes and sends one chunk after another, and so never has more than
 * two.  PyTorch: _sync_module_params_and_buffers(), of whole modules. */
static void
broadcast_chunks(fsdp_flat_param_handle_t *h, const fsdp1_options_t *options)
{
    size_t bytes = h->chunk * fsdp_dtype_size(h->dtype);
    void *chunk = fsdp_alloc(FSDP_MEM_COMM, bytes);
    for (int r = 0; r < h->world_size; r++) {
        if (fsdp_comm_rank(h->comm) == 0)
            make_chunk(h, options, r, chunk);
        fsdp_broadcast(h->comm, "sync_module_states", h->dtype, chunk, h->chunk,
                       0);
        if (r == h->rank)
            memcpy(h->local_shard, chunk, bytes);
    }
    if (h->replicate != NULL)
        fsdp_broadcast(h->replicate, "sync_module_states", h->dtype,
                       h->local_shard, h->chunk, 0);
    fsdp_free(chunk);
}

/* ---- life ---------------------------------------------------------------- */

/* ZeRO-1 and 2 have the whole, of which the rank updates its chunk in place, or,
 * if the whole is rounded, a master of it. */
static void
allocate(fsdp_flat_param_handle_t *h)
{
    size_t size = fsdp_dtype_size(h->dtype);
    bool inside = fsdp_flat_param_keeps_whole(h) && h->param_dtype == h->dtype;
    if (fsdp_flat_param_keeps_whole(h))
        h->unsharded = fsdp_alloc(FSDP_MEM_PARAM_SHARD,
                                  h->numel * fsdp_dtype_size(h->param_dtype));
    h->local_shard =
        inside ? (char *)h->unsharded + (size_t)h->rank * h->chunk * size
               : fsdp_alloc(FSDP_MEM_PARAM_SHARD, h->chunk * size);
}

/* reduce_dtype none: that of the gradient, if param_dtype is given.
 * PyTorch: _init_param_reduce_dtypes(). */
static void
init_param_reduce_dtypes(fsdp_flat_param_handle_t *h,
                         const fsdp_mixed_precision_t *mixed)
{
    h->param_dtype =
        mixed->param_dtype != FSDP_DTYPE_NONE ? mixed->param_dtype : h->dtype;
    h->reduce_dtype = mixed->reduce_dtype != FSDP_DTYPE_NONE
                          ? mixed->reduce_dtype
                          : h->param_dtype;
    h->keep_low_precision_grads = mixed->keep_low_precision_grads;
}

/* Over how many ranks a gradient is averaged. */
static int
data_parallel_size(const fsdp_flat_param_handle_t *h)
{
    int size = fsdp_comm_size(h->comm);
    return h->replicate != NULL ? size * fsdp_comm_size(h->replicate) : size;
}

/* PyTorch: DefaultState._get_gradient_predivide_factor(), with all ranks of a
 * hybrid mesh. */
static void
init_divide_factors(fsdp_flat_param_handle_t *h, double factor)
{
    if (factor == 0.0)
        factor = data_parallel_size(h);
    h->predivide = 1.0;
    while (fmod(factor, h->predivide) == 0.0 &&
           factor / h->predivide > h->predivide)
        h->predivide *= 2.0;
    h->postdivide = factor / h->predivide;
}

/* Over which ranks.  One rank in a row of several replicas: the replicas are
 * all that there is to synchronise, which PyTorch's clamp forgets. */
static void
init_comms(fsdp_flat_param_handle_t *h, fsdp_mesh_t *mesh)
{
    fsdp_comm_t *shard = fsdp_mesh_shard_comm(mesh);
    fsdp_comm_t *replicate = fsdp_mesh_replicate_comm(mesh);
    bool cut_up = fsdp_flat_param_uses_sharded_strategy(h);
    h->comm = cut_up || replicate == NULL ? shard : replicate;
    h->replicate = cut_up ? replicate : NULL;
    h->rank = cut_up ? fsdp_comm_rank(shard) : 0;
    h->world_size = cut_up ? fsdp_comm_size(shard) : 1;
    h->primary = h->replicate == NULL || fsdp_comm_rank(replicate) == 0;
}

static void
make_values(fsdp_flat_param_handle_t *h, const fsdp1_options_t *options)
{
    allocate(h);
    if (options->sync_module_states)
        broadcast_chunks(h, options);
    else
        make_chunk(h, options, h->rank, h->local_shard);
    if (fsdp_flat_param_keeps_whole(h))
        fsdp_flat_param_gather_updates(h);
    else if (!fsdp_flat_param_uses_sharded_strategy(h) &&
             h->param_dtype == h->dtype) { /* always there for everybody */
        fsdp_flat_param_unshard(h);
        fsdp_flat_param_lend_gathered(h);
    }
}

fsdp_flat_param_handle_t *
fsdp_flat_param_handle_create(const char *unit,
                              fsdp_parameter_t *const *parameters, int count,
                              fsdp_handle_strategy_t strategy,
                              const fsdp1_options_t *options)
{
    fsdp_flat_param_handle_t *h = fsdp_calloc(FSDP_MEM_OTHER, sizeof *h);
    h->unit = fsdp_strdup(unit);
    h->strategy = strategy;
    h->use_orig_params = options->use_orig_params;
    h->reduce_order = options->reduce_order;
    h->dtype = parameters[0]->dtype;
    h->pre_forward_order_index = h->post_forward_index = -1;
    h->gathered_since_update = true;
    init_comms(h, options->mesh);
    init_param_reduce_dtypes(h, &options->mixed_precision);
    init_divide_factors(h, options->gradient_divide_factor);
    lay_out(h, parameters, count);
    cut(h);
    for (int i = 0; i < count; i++) {
        parameters[i]->managed = &h->view[i].managed;
        parameters[i]->data_dtype = h->param_dtype;
    }
    make_values(h, options);
    return h;
}

void
fsdp_flat_param_handle_destroy(fsdp_flat_param_handle_t **handle)
{
    fsdp_flat_param_handle_t *h = *handle;
    fsdp_work_wait(&h->all_gather);
    fsdp_grad_sum_clear(&h->unsharded_grad);
    fsdp_grad_sum_clear(&h->sharded_grad);
    fsdp_free(h->low_grad);
    for (int i = 0; i < h->num_views; i++) {
        fsdp_parameter_t *p = h->view[i].parameter;
        p->data = NULL;
        p->data_dtype = p->dtype;
        p->managed = NULL;
    }
    bool inside = fsdp_flat_param_keeps_whole(h) && h->param_dtype == h->dtype;
    if (inside || h->unsharded != h->local_shard)
        fsdp_free(h->unsharded);
    if (!inside)
        fsdp_free(h->local_shard);
    fsdp_free(h->view);
    fsdp_free(h->unit);
    fsdp_free(h);
    *handle = NULL;
}
