/* PyTorch: torch/distributed/fsdp/_flat_param.py, unshard() and reshard(). */
#include <string.h>

#include "fsdp/flat_param.h"
#include "fsdp/fsdp_common.h"
#include "fsdp/memory.h"
#include "fsdp/tensor.h"

static const char *
ledger_unit(const fsdp_flat_param_handle_t *h)
{
    return h->unit[0] != '\0' ? h->unit : "(root)";
}

static bool
is_cut(const fsdp_flat_param_handle_t *h)
{
    return fsdp_flat_param_uses_sharded_strategy(h) &&
           !fsdp_flat_param_keeps_whole(h);
}

bool
fsdp_flat_param_needs_unshard(const fsdp_flat_param_handle_t *h)
{
    return is_cut(h) && h->unsharded == NULL;
}

/* This rank's place in a whole of elements of `size` bytes. */
static char *
my_chunk(const fsdp_flat_param_handle_t *h, void *whole, size_t size)
{
    return (char *)whole + (size_t)h->rank * h->chunk * size;
}

/* The chunk is cast before it is sent, so 16-bit parameters send half. */
static void
start_all_gather(fsdp_flat_param_handle_t *h)
{
    size_t size = fsdp_dtype_size(h->param_dtype);
    fsdp_emit_event(FSDP_EVENT_UNSHARD, h->unit, h->training_state);
    h->unsharded = fsdp_alloc(FSDP_MEM_UNSHARDED_PARAM, h->numel * size);
    void *mine = my_chunk(h, h->unsharded, size);
    fsdp_convert(h->dtype, h->local_shard, h->param_dtype, mine, h->chunk);
    h->all_gather = fsdp_all_gather_start(
        h->comm, ledger_unit(h), h->param_dtype, mine, h->unsharded, h->chunk);
    h->gather_pending = true;
}

/* NO_SHARD: the local shard is all, or all of it is rounded. */
static void
take_local(fsdp_flat_param_handle_t *h)
{
    if (h->param_dtype == h->dtype) {
        h->unsharded = h->local_shard;
        return;
    }
    h->unsharded = fsdp_alloc(FSDP_MEM_UNSHARDED_PARAM,
                              h->numel * fsdp_dtype_size(h->param_dtype));
    fsdp_convert(h->dtype, h->local_shard, h->param_dtype, h->unsharded,
                 h->numel);
}

void
fsdp_flat_param_unshard(fsdp_flat_param_handle_t *h)
{
    if (fsdp_flat_param_needs_unshard(h))
        start_all_gather(h);
    else if (h->unsharded == NULL)
        take_local(h);
}

static void
lend(fsdp_flat_param_handle_t *h, void *whole, fsdp_dtype_t dtype)
{
    size_t size = fsdp_dtype_size(dtype);
    for (int i = 0; i < h->num_views; i++) {
        fsdp_parameter_t *p = h->view[i].parameter;
        p->data =
            whole != NULL ? (char *)whole + h->view[i].offset * size : NULL;
        p->data_dtype = dtype;
    }
}

void
fsdp_flat_param_wait(fsdp_flat_param_handle_t *h)
{
    fsdp_work_wait(&h->all_gather);
    if (h->gather_pending)
        fsdp_emit_event(FSDP_EVENT_WAIT_FOR_UNSHARD, h->unit,
                        h->training_state);
    h->gather_pending = false;
    if (h->using_unsharded)
        return;
    lend(h, h->unsharded, h->param_dtype);
    h->using_unsharded = true;
    for (int i = 0; i < h->num_views; i++)
        fsdp_emit_gathered(h->view[i].parameter, h->view[i].parameter->data);
}

static void
free_unsharded(fsdp_flat_param_handle_t *h)
{
    fsdp_work_wait(&h->all_gather); /* prefetched, but not used */
    h->gather_pending = false;
    lend(h, NULL, h->param_dtype);
    fsdp_free(h->unsharded);
    h->unsharded = NULL;
}

/* A strategy that does not free keeps lending: nobody can tell the difference,
 * but a view that is used again need not be gathered. */
void
fsdp_flat_param_reshard(fsdp_flat_param_handle_t *h, bool free_it)
{
    h->using_unsharded = false;
    if (h->unsharded == NULL)
        return;
    if (is_cut(h) && free_it) {
        free_unsharded(h);
        fsdp_emit_event(FSDP_EVENT_RESHARD, h->unit, h->training_state);
    } else if (!fsdp_flat_param_uses_sharded_strategy(h) &&
               h->param_dtype != h->dtype) {
        free_unsharded(h);
    }
}

/* ---- the whole for others ------------------------------------------------ */

void
fsdp_flat_param_gather_updates(fsdp_flat_param_handle_t *h)
{
    size_t size = fsdp_dtype_size(h->param_dtype);
    void *mine = my_chunk(h, h->unsharded, size);
    if (h->param_dtype != h->dtype)
        fsdp_convert(h->dtype, h->local_shard, h->param_dtype, mine, h->chunk);
    fsdp_all_gather(h->comm, ledger_unit(h), h->param_dtype, mine, h->unsharded,
                    h->chunk);
    h->gathered_since_update = true;
    h->gather_forgotten = false;
    lend(h, h->unsharded, h->param_dtype);
}

void *
fsdp_flat_param_gather_full(fsdp_flat_param_handle_t *h, const void *chunk)
{
    size_t size = fsdp_dtype_size(h->dtype);
    char *whole = fsdp_alloc(FSDP_MEM_UNSHARDED_PARAM, h->numel * size);
    char *mine = my_chunk(h, whole, size);
    memcpy(mine, chunk, h->chunk * size);
    if (h->world_size > 1)
        fsdp_all_gather(h->comm, ledger_unit(h), h->dtype, mine, whole,
                        h->chunk);
    return whole;
}

void
fsdp_flat_param_lend_full(fsdp_flat_param_handle_t *h, void *whole)
{
    lend(h, whole, h->dtype);
}

void
fsdp_flat_param_lend_gathered(fsdp_flat_param_handle_t *h)
{
    lend(h, h->unsharded, h->param_dtype);
}
