#include <string.h>

#include "fsdp/fsdp_collectives.h"
#include "fsdp/fsdp_faults.h"
#include "fsdp/memory.h"

const char *
fsdp_ledger_unit(const char *unit)
{
    return unit[0] != '\0' ? unit : "(root)";
}

/* ---- copy in ------------------------------------------------------------ */

static size_t
data_size(const fsdp_param_t *param)
{
    return fsdp_dtype_size(fsdp_param_data_dtype(param));
}

/* Elements that one rank gives of a parameter to a gather over `ranks` ranks. */
static size_t
given_numel(const fsdp_param_t *param, int ranks)
{
    return fsdp_param_gathered_numel(param) / (size_t)ranks;
}

static size_t
row_bytes_of(fsdp_param_t *const *params, int num_params, int ranks)
{
    size_t bytes = 0;
    for (int p = 0; p < num_params; p++)
        bytes += given_numel(params[p], ranks) * data_size(params[p]);
    return bytes;
}

/* The type of the rows; bytes if the parameters' types differ. */
static fsdp_dtype_t
row_dtype(fsdp_param_t *const *params, int num_params)
{
    fsdp_dtype_t dtype = fsdp_param_data_dtype(params[0]);
    for (int p = 1; p < num_params; p++)
        if (fsdp_param_data_dtype(params[p]) != dtype)
            return FSDP_UINT8;
    return dtype;
}

/* Shards are cast before they travel: half the bytes, for bfloat16. */
static void
cast_shard(fsdp_param_t *param, void *out)
{
    size_t numel = fsdp_param_padded_numel(param);
    fsdp_dtype_t dtype = param->parameter->dtype;
    const void *shard = fsdp_fault_shard_to_gather(param);
    fsdp_convert(dtype, shard, fsdp_param_data_dtype(param), out, numel);
    fsdp_offload_release(shard, numel * fsdp_dtype_size(dtype));
}

/* PyTorch: all_gather_copy_in. */
static void
all_gather_copy_in(fsdp_param_t *const *params, int num_params, int ranks,
                   char *row)
{
    for (int p = 0; p < num_params; p++) {
        size_t bytes = given_numel(params[p], ranks) * data_size(params[p]);
        if (params[p]->sharded_state == FSDP_SHARDED_POST_FORWARD)
            memcpy(row, params[p]->post_forward_data, bytes);
        else
            cast_shard(params[p], row);
        row += bytes;
    }
}

/* ---- the collective ------------------------------------------------------ */

fsdp_all_gather_result_t *
fsdp_foreach_all_gather(fsdp_comm_t *comm, const char *unit,
                        fsdp_param_t *const *params, int num_params,
                        const fsdp_custom_comm_t *custom)
{
    fsdp_all_gather_result_t *result =
        fsdp_calloc(FSDP_MEM_OTHER, sizeof *result);
    int ranks = fsdp_comm_size(comm);
    result->num_rows = ranks;
    result->from_post_forward =
        params[0]->sharded_state == FSDP_SHARDED_POST_FORWARD;
    if (ranks == 1)
        return result;

    fsdp_dtype_t dtype = row_dtype(params, num_params);
    result->row_bytes = row_bytes_of(params, num_params, ranks);
    result->output =
        fsdp_alloc(FSDP_MEM_COMM, (size_t)ranks * result->row_bytes);
    char *mine =
        result->output + (size_t)fsdp_comm_rank(comm) * result->row_bytes;
    size_t count = result->row_bytes / fsdp_dtype_size(dtype);
    all_gather_copy_in(params, num_params, ranks, mine);
    if (custom->all_gather != NULL)
        custom->all_gather(custom->context, comm, dtype, mine, result->output,
                           count);
    else
        result->work = fsdp_all_gather_start(
            comm, fsdp_ledger_unit(unit), dtype, mine, result->output, count);
    return result;
}

/* ---- copy out ----------------------------------------------------------- */

/* One rank's chunk goes to its place in the whole. */
static void
place_chunk(fsdp_param_t *param, int rank, const char *chunk)
{
    const fsdp_shard_t *s = &param->shard;
    size_t size = data_size(param);
    size_t run = s->chunk_rows * s->inner * size; /* padding included */
    size_t begin = (size_t)rank * run;
    for (size_t o = 0; o < s->outer; o++)
        memcpy((char *)param->unsharded_data +
                   o * s->num_rows * s->inner * size + begin,
               chunk + o * run, run);
}

static void
copy_out_param(fsdp_param_t *param, const fsdp_all_gather_result_t *result,
               const char *column)
{
    size_t bytes = given_numel(param, result->num_rows) * data_size(param);
    for (int r = 0; r < result->num_rows; r++) {
        const char *from = column + (size_t)r * result->row_bytes;
        if (result->from_post_forward)
            memcpy((char *)param->unsharded_data +
                       (size_t)fsdp_fault_neighbour(r, result->num_rows) *
                           bytes,
                   from, bytes);
        else
            place_chunk(param, r, from);
    }
}

void
fsdp_foreach_all_gather_copy_out(fsdp_all_gather_result_t **result,
                                 fsdp_param_t *const *params, int num_params)
{
    fsdp_all_gather_result_t *r = *result;
    fsdp_work_wait(&r->work);

    const char *column = r->output;
    for (int p = 0; p < num_params; p++) {
        fsdp_param_alloc_unsharded(params[p]);
        if (r->output == NULL) {
            cast_shard(params[p], params[p]->unsharded_data);
        } else {
            copy_out_param(params[p], r, column);
            column +=
                given_numel(params[p], r->num_rows) * data_size(params[p]);
        }
    }
    fsdp_fault_after_gather(params, num_params);
    for (int p = 0; p < num_params; p++)
        fsdp_emit_gathered(params[p]->parameter, params[p]->unsharded_data);
    fsdp_all_gather_discard(result);
}

void
fsdp_all_gather_discard(fsdp_all_gather_result_t **result)
{
    if (*result == NULL)
        return;
    fsdp_work_wait(&(*result)->work);
    fsdp_free((*result)->output);
    fsdp_free(*result);
    *result = NULL;
}
