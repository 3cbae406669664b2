/* PyTorch: torch/distributed/fsdp/_exec_order_utils.py. */

#include "base/grow.h"
#include "fsdp/fsdp1_state.h"
#include "fsdp/memory.h"
#include "fsdp/status.h"

void
fsdp_handle_list_add(fsdp_handle_list_t *list, fsdp_flat_param_handle_t *handle)
{
    list->handle = fsdp_grow(FSDP_MEM_OTHER, list->handle, (size_t)list->count,
                             &list->room, 16, sizeof *list->handle);
    list->handle[list->count++] = handle;
}

void
fsdp_exec_order_init(fsdp_exec_order_data_t *data, const fsdp1_state_t *root)
{
    data->checking_order = root->options.check_execution_order;
    fsdp_comm_t *replicate = fsdp_mesh_replicate_comm(root->options.mesh);
    data->comm = fsdp_mesh_shard_comm(root->options.mesh);
    if (fsdp_comm_size(data->comm) == 1 && replicate != NULL)
        data->comm = replicate;
    for (int i = 0; i < root->num_states; i++) {
        fsdp_flat_param_handle_t *handle = root->all_states[i]->handle;
        if (handle == NULL)
            continue;
        handle->handle_index = data->all_handles.count;
        fsdp_handle_list_add(&data->all_handles, handle);
    }
}

void
fsdp_exec_order_destroy(fsdp_exec_order_data_t *data)
{
    fsdp_free(data->all_handles.handle);
    fsdp_free(data->pre_forward_order.handle);
    fsdp_free(data->post_forward_order.handle);
}

fsdp_flat_param_handle_t *
fsdp_exec_order_get_handle_to_backward_prefetch(
    const fsdp_exec_order_data_t *data, const fsdp_flat_param_handle_t *handle)
{
    int target = handle->post_forward_index - 1;
    return target >= 0 ? data->post_forward_order.handle[target] : NULL;
}

fsdp_flat_param_handle_t *
fsdp_exec_order_get_handle_to_forward_prefetch(
    const fsdp_exec_order_data_t *data, const fsdp_flat_param_handle_t *handle)
{
    int target = handle->pre_forward_order_index + 1;
    bool known = target > 0 && target < data->pre_forward_order.count;
    return known ? data->pre_forward_order.handle[target] : NULL;
}

/* As PyTorch does it, whose test for "seen before" takes index 0 for not seen:
 * the first unit of a forward gets a new index when it is used again. */
void
fsdp_exec_order_record_post_forward(fsdp_exec_order_data_t *data,
                                    fsdp_flat_param_handle_t *handle)
{
    if (handle->post_forward_index <= 0)
        handle->post_forward_index = data->post_forward_order.count;
    fsdp_handle_list_add(&data->post_forward_order, handle);
}

/* ---- checks -------------------------------------------------------------- */

static const char *
shown(const fsdp_flat_param_handle_t *handle)
{
    return handle->unit[0] != '\0' ? handle->unit : "(root)";
}

/* First iteration: all ranks are about to gather the same? */
static void
check_ranks_agree(const fsdp_exec_order_data_t *data,
                  const fsdp_flat_param_handle_t *handle)
{
    int size = fsdp_comm_size(data->comm);
    int32_t mine = handle->handle_index;
    int32_t *all = fsdp_alloc(FSDP_MEM_COMM, (size_t)size * sizeof *all);
    fsdp_all_gather(data->comm, "execution order", FSDP_INT32, &mine, all, 1);
    for (int r = 1; r < size; r++)
        FSDP_CHECK(all[r] == all[0],
                   "forward order differs across ranks: rank 0 runs unit "
                   "\"%s\" while rank %d runs unit \"%s\"; all ranks must run "
                   "the same modules in the same order",
                   shown(data->all_handles.handle[all[0]]), r,
                   shown(data->all_handles.handle[all[r]]));
    fsdp_free(all);
}

/* Later: does this rank do what it did the first time? */
static void
check_order_is_kept(fsdp_exec_order_data_t *data,
                    const fsdp_flat_param_handle_t *handle)
{
    if (data->warned)
        return;
    int i = data->current_order_index++;
    const fsdp_handle_list_t *first = &data->pre_forward_order;
    if (i < first->count && first->handle[i] == handle)
        return;
    if (!data->warning)
        fsdp_warn("rank %d: the forward's order differs from that of the first "
                  "iteration: unit \"%s\" where %s%s%s was expected; "
                  "collectives are unchecked and may hang",
                  fsdp_comm_rank(fsdp_comm_world()), shown(handle),
                  i < first->count ? "\"" : "",
                  i < first->count ? shown(first->handle[i]) : "none",
                  i < first->count ? "\"" : "");
    data->warning = true;
}

void
fsdp_exec_order_record_pre_forward(fsdp_exec_order_data_t *data,
                                   fsdp_flat_param_handle_t *handle,
                                   bool is_training)
{
    if (data->checking_order && is_training) {
        if (data->iter == 0)
            check_ranks_agree(data, handle);
        else
            check_order_is_kept(data, handle);
    }
    if (data->iter > 0 || handle->pre_forward_order_index >= 0)
        return;
    handle->pre_forward_order_index = data->pre_forward_order.count;
    fsdp_handle_list_add(&data->pre_forward_order, handle);
}

void
fsdp_exec_order_next_iter(fsdp_exec_order_data_t *data)
{
    data->iter++;
    data->post_forward_order.count = 0;
    data->current_order_index = 0;
    data->warned |= data->warning;
}
