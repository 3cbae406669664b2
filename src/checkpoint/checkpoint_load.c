/* Every rank takes the elements that it keeps from wherever they are. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_file.h"
#include "fsdp/offload.h"

/* ---- where an element is ------------------------------------------------- */

struct checkpoint_range {
    uint64_t begin, end; /* in the whole */
    uint64_t at;         /* of `begin`, in the file's tensor */
    int file;
};

static int
by_begin(const void *a, const void *b)
{
    const struct checkpoint_range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static size_t
count_ranges(const fsdp_index_parameter_t *parameter)
{
    size_t count = 0;
    for (size_t p = 0; p < parameter->num_pieces; p++)
        for (size_t i = 0; i < parameter->piece[p].num_runs; i++)
            count += parameter->piece[p].run[i].repeat;
    return count;
}

static size_t
add_piece(struct checkpoint_range *range, const fsdp_index_piece_t *piece)
{
    size_t count = 0;
    uint64_t at = 0;
    for (size_t i = 0; i < piece->num_runs; i++) {
        const fsdp_index_run_t *run = &piece->run[i];
        for (uint64_t k = 0; k < run->repeat; k++) {
            uint64_t begin = run->begin + k * run->stride;
            range[count++] = (struct checkpoint_range){
                begin, begin + run->count, at, piece->file};
            at += run->count;
        }
    }
    return count;
}

checkpoint_map_t
checkpoint_map_of(const fsdp_checkpoint_t *checkpoint,
                  const fsdp_index_parameter_t *parameter)
{
    checkpoint_map_t map = {checkpoint, parameter, NULL, 0};
    map.range =
        fsdp_alloc(FSDP_MEM_OTHER, count_ranges(parameter) * sizeof *map.range);
    for (size_t p = 0; p < parameter->num_pieces; p++)
        map.count += add_piece(map.range + map.count, &parameter->piece[p]);
    qsort(map.range, map.count, sizeof *map.range, by_begin);
    return map;
}

void
checkpoint_map_free(checkpoint_map_t *map)
{
    fsdp_free(map->range);
    map->range = NULL;
}

/* The range that holds an element. */
static size_t
find_range(const checkpoint_map_t *map, uint64_t element)
{
    size_t low = 0, high = map->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (map->range[middle].begin <= element)
            low = middle;
        else
            high = middle;
    }
    return low;
}

fsdp_status_t
checkpoint_read(const checkpoint_map_t *map, const char *name, uint64_t begin,
                uint64_t count, void *out)
{
    size_t size = fsdp_dtype_size(map->parameter->dtype);
    fsdp_status_t status = FSDP_OK;
    char *to = out;
    for (size_t i = find_range(map, begin); count > 0 && status == FSDP_OK;
         i++) {
        const struct checkpoint_range *range = &map->range[i];
        const fsdp_safetensors_t *file = map->checkpoint->file[range->file];
        uint64_t n = range->end - begin < count ? range->end - begin : count;
        status =
            fsdp_safetensors_read(file, fsdp_safetensors_find(file, name),
                                  range->at + (begin - range->begin), n, to);
        begin += n;
        count -= n;
        to += n * size;
    }
    return status;
}

/* ---- does it fit the model? ---------------------------------------------- */

static const fsdp_index_parameter_t *
find_parameter(const fsdp_checkpoint_t *c, const char *name)
{
    for (size_t i = 0; i < c->index.num_parameters; i++)
        if (strcmp(c->index.parameter[i].name, name) == 0)
            return &c->index.parameter[i];
    return NULL;
}

static fsdp_status_t
check_parameter(const fsdp_checkpoint_t *c, const fsdp_parameter_t *parameter)
{
    const fsdp_index_parameter_t *p = find_parameter(c, parameter->name);
    size_t shape[FSDP_MAX_DIMS];
    if (p == NULL)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: parameter %s is missing; is it the checkpoint "
                          "of another model?",
                          c->path, parameter->name);
    fsdp_parameter_whole_shape(parameter, shape);
    bool same = p->ndim == parameter->ndim && p->dtype == parameter->dtype;
    for (int d = 0; d < p->ndim && same; d++)
        same = p->shape[d] == shape[d];
    if (!same)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: parameter %s has another shape or type (%s) "
                          "than in the model (%s); build the model that was "
                          "saved",
                          c->path, p->name, fsdp_dtype_name(p->dtype),
                          fsdp_dtype_name(parameter->dtype));
    return FSDP_OK;
}

static fsdp_status_t
check_optimizer(const fsdp_checkpoint_t *c, const fsdp_optimizer_t *optimizer)
{
    for (int k = 0; k < FSDP_INDEX_MAX_STATES; k++) {
        const char *have = c->index.state[k];
        const char *want = fsdp_optimizer_state_name(optimizer, k);
        if (have == NULL && want == NULL)
            return FSDP_OK;
        if (have == NULL || want == NULL || strcmp(have, want) != 0)
            return fsdp_error(FSDP_ERR_INPUT,
                              "%s: it has the optimizer state %s where this "
                              "optimizer has %s; resume with the optimizer "
                              "that was saved",
                              c->path, have != NULL ? have : "(none)",
                              want != NULL ? want : "(none)");
    }
    return FSDP_OK;
}

static fsdp_status_t
check_fit(const fsdp_checkpoint_t *c, const fsdp_parameter_list_t *list,
          const fsdp_optimizer_t *optimizer)
{
    fsdp_status_t status = FSDP_OK;
    for (size_t i = 0; i < list->count && status == FSDP_OK; i++)
        status = check_parameter(c, list->parameter[i]);
    if (status == FSDP_OK && list->count != c->index.num_parameters)
        status = fsdp_error(FSDP_ERR_INPUT,
                            "%s: it has %zu parameters, the model %zu; is it "
                            "the checkpoint of another model?",
                            c->path, c->index.num_parameters, list->count);
    if (status == FSDP_OK && optimizer != NULL)
        status = check_optimizer(c, optimizer);
    return status;
}

/* ---- loading ------------------------------------------------------------- */

static fsdp_status_t
load_thing(const checkpoint_map_t *map, int k, const fsdp_local_t *local,
           void *out)
{
    char *name = checkpoint_tensor_name(map->checkpoint, map->parameter, k);
    size_t size = fsdp_dtype_size(map->parameter->dtype);
    fsdp_status_t status = FSDP_OK;
    fsdp_run_t run = {0};
    while (name != NULL && status == FSDP_OK &&
           fsdp_layout_next_run(&local->layout, &run))
        status = checkpoint_read(map, name, run.whole, run.count,
                                 (char *)out + run.local * size);
    fsdp_offload_release(out, local->padded_numel * size);
    fsdp_free(name);
    return status;
}

static fsdp_status_t
load_parameter(const fsdp_checkpoint_t *c, fsdp_parameter_t *parameter,
               fsdp_optimizer_t *optimizer)
{
    const fsdp_index_parameter_t *p = find_parameter(c, parameter->name);
    checkpoint_map_t map = checkpoint_map_of(c, p);
    fsdp_local_t local = fsdp_parameter_local(parameter);
    fsdp_status_t status = load_thing(&map, 0, &local, local.data);
    if (optimizer != NULL)
        fsdp_optimizer_restore(optimizer, parameter, p->optimizer_step);
    for (int k = 0;
         optimizer != NULL && p->optimizer_step > 0 && status == FSDP_OK &&
         k < FSDP_INDEX_MAX_STATES && c->index.state[k] != NULL;
         k++)
        status = load_thing(&map, k + 1, &local,
                            fsdp_optimizer_state(optimizer, parameter, k));
    checkpoint_map_free(&map);
    return status;
}

fsdp_status_t
fsdp_checkpoint_load(const fsdp_checkpoint_t *checkpoint, fsdp_module_t *model,
                     fsdp_optimizer_t *optimizer)
{
    fsdp_parameter_list_t list = fsdp_parameter_list_of(model);
    fsdp_status_t status = fsdp_comm_agree(
        checkpoint->comm, check_fit(checkpoint, &list, optimizer));
    bool fits = status == FSDP_OK;
    for (size_t i = 0; i < list.count && status == FSDP_OK; i++)
        status = load_parameter(checkpoint, list.parameter[i], optimizer);
    if (fits)
        status = fsdp_comm_agree(checkpoint->comm, status);
    fsdp_free(list.parameter);
    return status;
}
