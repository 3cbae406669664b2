/* What one rank recorded of one step: its tensors, and the JSON beside them. */

#include <stdlib.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/internal.h"

typedef struct reader {
    const char *name;
    int world_size;
    trace_pool_t *pool;
    trace_part_t *part;
} reader_t;

static fsdp_status_t
bad(const reader_t *r, const char *where, const char *what)
{
    return fsdp_error(FSDP_ERR_INPUT, "%s: %s %s; see python/trace_format.md",
                      r->name, where, what);
}

/* ---- tensors ------------------------------------------------------------ */

static int
item_order(const trace_item_t *a, const trace_item_t *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    if (a->micro != b->micro)
        return a->micro < b->micro ? -1 : 1;
    return strcmp(a->name->text, b->name->text);
}

static int
compare_items(const void *a, const void *b)
{
    return item_order(a, b);
}

/* The item of that key; NULL: there is none. */
static trace_item_t *
find_item(const reader_t *r, const char *key, trace_key_kind_t *kind)
{
    trace_item_t wanted = {0};
    const char *name;
    *kind = trace_key_parse(key, &wanted.phase, &wanted.micro, &name);
    if (*kind != TRACE_KEY_GOOD)
        return NULL;
    wanted.name = trace_pool_find(r->pool, name);
    if (wanted.name == NULL || r->part->num_items == 0)
        return NULL;
    return bsearch(&wanted, r->part->item, r->part->num_items,
                   sizeof *r->part->item, compare_items);
}

static fsdp_status_t
list_entry(const fsdp_safetensors_entry_t *entry, size_t number,
           trace_pool_t *pool, trace_part_t *part)
{
    trace_item_t item = {.entry = number,
                         .dtype = entry->dtype,
                         .numel = entry->numel,
                         .ndim = entry->ndim,
                         .whole_numel = entry->numel,
                         .whole = true,
                         .position = UINT64_MAX};
    const char *name;
    switch (trace_key_parse(entry->name, &item.phase, &item.micro, &name)) {
    case TRACE_KEY_UNKNOWN_STATE:
        return FSDP_OK;
    case TRACE_KEY_BAD:
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: \"%s\" is no key of a trace, which are "
                          "PHASE/MICRO/NAME; see python/trace_format.md",
                          part->path, entry->name);
    case TRACE_KEY_GOOD:
        break;
    }
    if (!fsdp_dtype_is_floating(item.dtype) &&
        !trace_phase_may_be_integer(item.phase))
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: \"%s\" is %s; only inputs may be whole numbers",
                          part->path, entry->name, fsdp_dtype_name(item.dtype));
    memcpy(item.shape, entry->shape, sizeof item.shape);
    item.name = trace_pool_add(pool, name, strlen(name));
    part->item[part->num_items++] = item;
    part->numel += item.numel;
    return FSDP_OK;
}

fsdp_status_t
trace_part_list(const fsdp_safetensors_t *file, trace_pool_t *pool,
                trace_part_t *part)
{
    size_t count = fsdp_safetensors_count(file);
    fsdp_status_t status = FSDP_OK;
    part->item = fsdp_alloc(FSDP_MEM_OTHER, count * sizeof *part->item);
    for (size_t i = 0; i < count && status == FSDP_OK; i++)
        status = list_entry(fsdp_safetensors_entry(file, i), i, pool, part);
    if (part->num_items > 0)
        qsort(part->item, part->num_items, sizeof *part->item, compare_items);
    return status;
}

/* ---- pieces ------------------------------------------------------------- */

static fsdp_status_t
read_runs(const reader_t *r, const char *key, const fsdp_json_t *runs,
          trace_item_t *item)
{
    uint64_t numel = 0;
    item->num_runs = fsdp_json_size(runs);
    item->run = fsdp_calloc(FSDP_MEM_OTHER, item->num_runs * sizeof *item->run);
    for (size_t i = 0; i < item->num_runs; i++) {
        fsdp_index_run_t *run = &item->run[i];
        const char *fault =
            fsdp_index_run_read(fsdp_json_at(runs, i), item->whole_numel, run);
        if (fault != NULL)
            return bad(r, key, fault);
        /* Each is below 2^63 and at most whole_numel, so nothing overflows. */
        numel += run->count * run->repeat;
        if (numel > item->numel)
            break;
    }
    if (numel != item->numel)
        return bad(r, key, "has another number of elements than its runs");
    return FSDP_OK;
}

static fsdp_status_t
read_piece(const reader_t *r, const char *key, const fsdp_json_t *value,
           trace_item_t *item)
{
    const fsdp_json_t *shape = fsdp_json_member(value, "shape");
    const fsdp_json_t *runs = fsdp_json_member(value, "runs");
    if (!fsdp_json_is(shape, FSDP_JSON_ARRAY) ||
        fsdp_json_size(shape) > FSDP_SAFETENSORS_MAX_DIMS)
        return bad(r, key, "has no \"shape\" of up to 8 numbers");
    if (!fsdp_json_is(runs, FSDP_JSON_ARRAY))
        return bad(r, key, "has no array \"runs\"");
    item->ndim = (int)fsdp_json_size(shape);
    item->whole_numel = 1;
    for (int d = 0; d < item->ndim; d++)
        if (!fsdp_json_get_count(fsdp_json_at(shape, (size_t)d), INT64_MAX,
                                 &item->shape[d]) ||
            __builtin_mul_overflow(item->whole_numel, item->shape[d],
                                   &item->whole_numel) ||
            item->whole_numel > INT64_MAX / 8)
            return bad(r, key, "has a shape whose size overflows");
    item->whole = false;
    return read_runs(r, key, runs, item);
}

static fsdp_status_t
read_pieces(const reader_t *r, const fsdp_json_t *pieces)
{
    fsdp_status_t status = FSDP_OK;
    if (pieces != NULL && !fsdp_json_is(pieces, FSDP_JSON_OBJECT))
        return bad(r, "\"pieces\"", "is no object");
    for (fsdp_json_iter_t it = fsdp_json_first(pieces);
         it.key != NULL && status == FSDP_OK; fsdp_json_next(&it)) {
        trace_key_kind_t kind;
        trace_item_t *item = find_item(r, it.key, &kind);
        if (item != NULL)
            status = read_piece(r, it.key, it.value, item);
        else if (kind != TRACE_KEY_UNKNOWN_STATE)
            status = bad(r, it.key,
                         "is in \"pieces\", but no tensor of the "
                         "file beside it");
    }
    return status;
}

/* ---- order -------------------------------------------------------------- */

static fsdp_status_t
read_order(const reader_t *r, const fsdp_json_t *order)
{
    if (order == NULL || fsdp_json_is(order, FSDP_JSON_NULL)) {
        trace_order_part(r->part);
        return FSDP_OK;
    }
    if (!fsdp_json_is(order, FSDP_JSON_ARRAY))
        return bad(r, "\"order\"", "is no array");
    for (size_t i = 0; i < fsdp_json_size(order); i++) {
        const char *key = fsdp_json_get_string(fsdp_json_at(order, i));
        trace_key_kind_t kind;
        if (key == NULL)
            return bad(r, "\"order\"", "holds what is no string");
        trace_item_t *item = find_item(r, key, &kind);
        if (item == NULL && kind == TRACE_KEY_UNKNOWN_STATE)
            continue;
        if (item == NULL)
            return bad(r, key,
                       "is in \"order\", but no tensor of the file "
                       "beside it");
        if (item->position != UINT64_MAX)
            return bad(r, key, "is in \"order\" twice");
        item->position = i;
    }
    return FSDP_OK;
}

/* ---- the ledger --------------------------------------------------------- */

static fsdp_status_t
read_collective(const reader_t *r, const fsdp_json_t *value,
                fsdp_trace_collective_t *to)
{
    static const char *const key[] = {"kind", "unit", "dtype", "op", "group"};
    const char **const field[] = {&to->kind, &to->unit, &to->dtype, &to->op,
                                  &to->group};
    uint64_t sequence = 0;
    const fsdp_json_t *number = fsdp_json_member(value, "sequence");
    const fsdp_json_t *bytes = fsdp_json_member(value, "bytes");
    if (!fsdp_json_is(value, FSDP_JSON_OBJECT))
        return bad(r, "\"ledger\"", "holds what is no object");
    for (int i = 0; i < 5; i++) {
        const fsdp_json_t *text = fsdp_json_member(value, key[i]);
        if (text != NULL && !fsdp_json_is(text, FSDP_JSON_NULL) &&
            !fsdp_json_is(text, FSDP_JSON_STRING))
            return bad(r, "\"ledger\"", "has words that are no strings");
        *field[i] = trace_pool_text(r->pool, fsdp_json_get_string(text));
    }
    if ((number != NULL &&
         !fsdp_json_get_count(number, INT64_MAX, &sequence)) ||
        (bytes != NULL && !fsdp_json_get_count(bytes, INT64_MAX, &to->bytes)))
        return bad(r, "\"ledger\"", "has numbers that are no whole ones");
    to->sequence = (long)sequence;
    return FSDP_OK;
}

static fsdp_status_t
read_ledger(const reader_t *r, const fsdp_json_t *ledger)
{
    trace_part_t *part = r->part;
    fsdp_status_t status = FSDP_OK;
    if (ledger != NULL && !fsdp_json_is(ledger, FSDP_JSON_ARRAY) &&
        !fsdp_json_is(ledger, FSDP_JSON_NULL))
        return bad(r, "\"ledger\"", "is no array");
    part->num_collectives = fsdp_json_size(ledger);
    part->collective = fsdp_calloc(
        FSDP_MEM_OTHER, part->num_collectives * sizeof *part->collective);
    for (size_t i = 0; i < part->num_collectives && status == FSDP_OK; i++)
        status =
            read_collective(r, fsdp_json_at(ledger, i), &part->collective[i]);
    return status;
}

/* ---- the whole ---------------------------------------------------------- */

static fsdp_status_t
read_head(const reader_t *r, const fsdp_json_t *all)
{
    uint64_t number;
    trace_part_t *part = r->part;
    const fsdp_json_t *place = fsdp_json_member(all, "data_parallel_rank");
    if (!fsdp_json_get_count(fsdp_json_member(all, "rank"), INT32_MAX,
                             &number) ||
        number != (uint64_t)part->rank)
        return bad(r, "\"rank\"", "is not the rank of the file's name");
    if (!fsdp_json_get_count(fsdp_json_member(all, "step"), INT64_MAX,
                             &number) ||
        number != (uint64_t)part->step)
        return bad(r, "\"step\"", "is not the step of the folder's name");
    if (place == NULL || fsdp_json_is(place, FSDP_JSON_NULL))
        return FSDP_OK;
    if (!fsdp_json_get_count(place, r->world_size - 1, &number))
        return bad(r, "\"data_parallel_rank\"",
                   "is no whole number below \"world_size\"");
    part->data_parallel_rank = (int)number;
    return FSDP_OK;
}

fsdp_status_t
trace_part_parse(const char *name, const char *text, size_t length,
                 int world_size, trace_pool_t *pool, trace_part_t *part)
{
    const reader_t r = {name, world_size, pool, part};
    fsdp_json_t *all;
    fsdp_status_t status = fsdp_json_parse(name, text, length, &all);
    if (status != FSDP_OK)
        return status;
    if (!fsdp_json_is(all, FSDP_JSON_OBJECT))
        status = fsdp_error(FSDP_ERR_INPUT, "%s: it holds no object", name);
    if (status == FSDP_OK)
        status = read_head(&r, all);
    if (status == FSDP_OK)
        status = read_pieces(&r, fsdp_json_member(all, "pieces"));
    if (status == FSDP_OK)
        status = read_order(&r, fsdp_json_member(all, "order"));
    if (status == FSDP_OK)
        status = read_ledger(&r, fsdp_json_member(all, "ledger"));
    fsdp_json_destroy(&all);
    return status;
}

void
trace_part_free(trace_part_t *part)
{
    for (size_t i = 0; i < part->num_items; i++)
        fsdp_free(part->item[i].run);
    fsdp_free(part->item);
    fsdp_free(part->collective);
    fsdp_safetensors_close(&part->file);
    fsdp_free(part->path);
    *part = (trace_part_t){0};
}
