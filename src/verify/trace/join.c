/* What all ranks have of one thing of one step becomes one record. */

#include <stdlib.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/internal.h"

/* ---- what names mean ---------------------------------------------------- */

void
trace_learn_names(fsdp_trace_t *trace)
{
    const fsdp_trace_about_t *a = &trace->about.about;
    for (int i = a->num_units - 1; i >= 0; i--)
        trace_pool_add(&trace->pool, a->unit[i], strlen(a->unit[i]))->unit = i;
    for (int i = a->num_parameters - 1; i >= 0; i--) {
        const fsdp_trace_parameter_t *p = &a->parameter[i];
        trace_name_t *name =
            trace_pool_add(&trace->pool, p->name, strlen(p->name));
        const trace_name_t *unit =
            p->unit != NULL ? trace_pool_find(&trace->pool, p->unit) : NULL;
        name->parameter = i;
        name->of_unit = unit != NULL ? unit->unit : -1;
    }
}

/* ---- records ------------------------------------------------------------ */

int
trace_record_order(const fsdp_trace_record_t *a, const fsdp_trace_record_t *b)
{
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->phase != b->phase)
        return a->phase < b->phase ? -1 : 1;
    if (a->micro != b->micro)
        return a->micro < b->micro ? -1 : 1;
    return strcmp(a->name, b->name);
}

static fsdp_trace_record_t
record_of(const fsdp_trace_t *trace, const trace_item_t *item)
{
    fsdp_trace_record_t record = {.step = trace->part[item->part].step,
                                  .phase = item->phase,
                                  .micro = item->micro,
                                  .name = item->name->text,
                                  .dtype = item->dtype,
                                  .ndim = item->ndim,
                                  .numel = item->whole_numel};
    memcpy(record.shape, item->shape, sizeof record.shape);
    return record;
}

/* An item with what it is sorted by. */
typedef struct sorted {
    fsdp_trace_record_t record;
    trace_item_t *item;
} sorted_t;

/* Parts stand by step and rank already. */
static int
compare_sorted(const void *a, const void *b)
{
    const sorted_t *x = a, *y = b;
    int order = trace_record_order(&x->record, &y->record);
    if (order != 0)
        return order;
    return (x->item->part > y->item->part) - (x->item->part < y->item->part);
}

static sorted_t *
sort_items(fsdp_trace_t *trace)
{
    for (size_t p = 0; p < trace->num_parts; p++)
        trace->num_pieces += trace->part[p].num_items;
    sorted_t *list =
        fsdp_alloc(FSDP_MEM_OTHER, trace->num_pieces * sizeof *list);
    size_t n = 0;
    for (size_t p = 0; p < trace->num_parts; p++)
        for (size_t i = 0; i < trace->part[p].num_items; i++, n++) {
            trace_item_t *item = &trace->part[p].item[i];
            item->part = p;
            list[n] = (sorted_t){record_of(trace, item), item};
        }
    if (n > 0)
        qsort(list, n, sizeof *list, compare_sorted);
    return list;
}

static void
format_record(const fsdp_trace_record_t *record, char *text, size_t size)
{
    char micro[16] = "-";
    if (record->micro >= 0)
        snprintf(micro, sizeof micro, "%d", record->micro);
    snprintf(text, size, "step %ld, %s/%s/%.200s", record->step,
             fsdp_trace_phase_name(record->phase), micro, record->name);
}

/* The item's whole is the one that the ranks before it have. */
static fsdp_status_t
add_piece(fsdp_trace_t *trace, fsdp_trace_record_t *record, trace_item_t *item)
{
    const trace_part_t *part = &trace->part[item->part];
    if (record->ndim != item->ndim ||
        memcmp(record->shape, item->shape,
               (size_t)item->ndim * sizeof *item->shape) != 0) {
        char text[300];
        format_record(record, text, sizeof text);
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s: %s has another shape on rank %d than on rank %d "
                          "(is \"pieces\" missing for a shard?)",
                          trace->path, text, part->rank, record->piece[0].rank);
    }
    item->record = (size_t)(record - trace->record);
    record->dtypes_differ |= record->dtype != item->dtype;
    size_t at =
        (size_t)(record->piece - trace->piece) + (size_t)record->num_pieces++;
    trace->item[at] = item;
    trace->piece[at] = (fsdp_trace_piece_t){.rank = part->rank,
                                            .dtype = item->dtype,
                                            .numel = item->numel,
                                            .whole = item->whole};
    return FSDP_OK;
}

/* ---- is it believable? -------------------------------------------------- */

/* A whole is not much larger than what its ranks recorded of it lets expect, lest
 * a few bytes ask for all memory. */
static fsdp_status_t
check_size(const fsdp_trace_t *trace, const fsdp_trace_record_t *record)
{
    double have = 0;
    for (int i = 0; i < record->num_pieces; i++)
        have += (double)record->piece[i].numel;
    if (record->numel <= TRACE_SMALL ||
        (double)record->numel <=
            2 * have * (double)trace->about.about.world_size)
        return FSDP_OK;
    char text[300];
    format_record(record, text, sizeof text);
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: %s claims to be part of %llu elements, of which the "
                      "trace has %.0f; record more ranks",
                      trace->path, text, (unsigned long long)record->numel,
                      have);
}

/* Its shape is that which trace.json gives the parameter. */
static fsdp_status_t
check_parameter(const fsdp_trace_t *trace, const fsdp_trace_record_t *record,
                const trace_name_t *name)
{
    const fsdp_trace_about_t *a = &trace->about.about;
    if (!trace_phase_is_of_parameter(record->phase) ||
        record->phase == FSDP_TRACE_STATE_STEP || name->parameter < 0)
        return FSDP_OK;
    const fsdp_trace_parameter_t *p = &a->parameter[name->parameter];
    bool same = p->ndim == record->ndim &&
                memcmp(p->shape, record->shape,
                       (size_t)p->ndim * sizeof *p->shape) == 0;
    if (same || (p->ndim == 0 && p->numel == 0))
        return FSDP_OK;
    char text[300];
    format_record(record, text, sizeof text);
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: %s has another shape than trace.json says (is "
                      "\"pieces\" missing for a shard?)",
                      trace->path, text);
}

fsdp_status_t
trace_join(fsdp_trace_t *trace)
{
    sorted_t *list = sort_items(trace);
    size_t n = trace->num_pieces;
    fsdp_status_t status = FSDP_OK;
    trace->item = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *trace->item);
    trace->piece = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *trace->piece);
    trace->record = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *trace->record);
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        size_t r = trace->num_records;
        if (i == 0 ||
            trace_record_order(&list[i].record, &trace->record[r - 1]) != 0) {
            trace->record[r] = list[i].record;
            trace->record[r].piece = &trace->piece[i];
            trace->num_records = ++r;
        }
        fsdp_trace_record_t *record = &trace->record[r - 1];
        status = add_piece(trace, record, list[i].item);
        bool last =
            i + 1 == n || trace_record_order(&list[i + 1].record, record) != 0;
        if (status == FSDP_OK && last)
            status = check_size(trace, record);
        if (status == FSDP_OK && last)
            status = check_parameter(trace, record, list[i].item->name);
    }
    fsdp_free(list);
    return status;
}

/* ---- look-ups ----------------------------------------------------------- */

const char *
fsdp_trace_path(const fsdp_trace_t *trace)
{
    return trace->path;
}

const fsdp_trace_about_t *
fsdp_trace_about(const fsdp_trace_t *trace)
{
    return &trace->about.about;
}

size_t
fsdp_trace_count(const fsdp_trace_t *trace)
{
    return trace->num_records;
}

const fsdp_trace_record_t *
fsdp_trace_record(const fsdp_trace_t *trace, size_t i)
{
    FSDP_CHECK(i < trace->num_records, "record %zu of %zu", i,
               trace->num_records);
    return &trace->record[trace->happened[i]];
}

size_t
fsdp_trace_index(const fsdp_trace_t *trace, const fsdp_trace_record_t *record)
{
    return trace->place[record - trace->record];
}

static int
compare_records(const void *a, const void *b)
{
    return trace_record_order(a, b);
}

const fsdp_trace_record_t *
fsdp_trace_find(const fsdp_trace_t *trace, long step, fsdp_trace_phase_t phase,
                int micro, const char *name)
{
    const fsdp_trace_record_t wanted = {
        .step = step, .phase = phase, .micro = micro, .name = name};
    if (trace->num_records == 0)
        return NULL;
    return bsearch(&wanted, trace->record, trace->num_records,
                   sizeof *trace->record, compare_records);
}

static const trace_part_t *
find_part(const fsdp_trace_t *trace, long step, int rank)
{
    size_t low = 0, high = trace->num_parts;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const trace_part_t *part = &trace->part[middle];
        if (part->step < step || (part->step == step && part->rank < rank))
            low = middle + 1;
        else
            high = middle;
    }
    const trace_part_t *part = &trace->part[low];
    bool found =
        low < trace->num_parts && part->step == step && part->rank == rank;
    return found ? part : NULL;
}

const fsdp_trace_collective_t *
fsdp_trace_ledger(const fsdp_trace_t *trace, long step, int rank, size_t *count)
{
    const trace_part_t *part = find_part(trace, step, rank);
    *count = part != NULL ? part->num_collectives : 0;
    return *count > 0 ? part->collective : NULL;
}

int
fsdp_trace_data_parallel_rank(const fsdp_trace_t *trace, long step, int rank)
{
    const trace_part_t *part = find_part(trace, step, rank);
    return part != NULL ? part->data_parallel_rank : -1;
}
