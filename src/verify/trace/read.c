/* The values of a trace. */

#include <math.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "verify/trace/internal.h"

enum { BLOCK = 1 << 16 }; /* elements that are read at once */

/* ---- files --------------------------------------------------------------- */

static void
close_oldest(fsdp_trace_t *trace)
{
    trace_part_t *oldest = NULL;
    for (size_t p = 0; p < trace->num_parts; p++) {
        trace_part_t *part = &trace->part[p];
        if (part->file != NULL && (oldest == NULL || part->used < oldest->used))
            oldest = part;
    }
    if (oldest == NULL)
        return;
    fsdp_safetensors_close(&oldest->file);
    trace->num_open--;
}

/* The entry of an item in its file, which may have been changed since. */
static fsdp_status_t
open_entry(fsdp_trace_t *trace, const trace_item_t *item,
           const fsdp_safetensors_entry_t **entry)
{
    trace_part_t *part = &trace->part[item->part];
    if (part->file == NULL) {
        if (trace->num_open >= TRACE_OPEN_FILES)
            close_oldest(trace);
        fsdp_status_t status = fsdp_safetensors_open(part->path, &part->file);
        if (status != FSDP_OK)
            return status;
        trace->num_open++;
    }
    part->used = ++trace->clock;
    *entry = NULL;
    if (item->entry < fsdp_safetensors_count(part->file))
        *entry = fsdp_safetensors_entry(part->file, item->entry);
    if (*entry == NULL || (*entry)->numel != item->numel ||
        (*entry)->dtype != item->dtype)
        return fsdp_error(FSDP_ERR_INPUT,
                          "%s was changed while the trace was read; start "
                          "again",
                          part->path);
    return FSDP_OK;
}

static void
to_double(fsdp_dtype_t dtype, const void *in, double *out, size_t n)
{
    switch (dtype) {
    case FSDP_INT64:
        for (size_t i = 0; i < n; i++)
            out[i] = (double)((const int64_t *)in)[i];
        break;
    case FSDP_INT32:
        for (size_t i = 0; i < n; i++)
            out[i] = ((const int32_t *)in)[i];
        break;
    case FSDP_UINT8:
        for (size_t i = 0; i < n; i++)
            out[i] = ((const uint8_t *)in)[i];
        break;
    default:
        fsdp_convert(dtype, in, FSDP_FP64, out, n);
    }
}

/* ---- where elements belong ------------------------------------------------ */

/* Steps through a piece, element by element. */
typedef struct walker {
    const trace_item_t *item;
    size_t run;
    uint64_t repeat, at; /**< within the run */
} walker_t;

static uint64_t
next_element(walker_t *w)
{
    if (w->item->whole)
        return w->at++;
    const fsdp_index_run_t *run = &w->item->run[w->run];
    uint64_t element = run->begin + w->repeat * run->stride + w->at;
    if (++w->at < run->count)
        return element;
    w->at = 0;
    if (++w->repeat < run->repeat)
        return element;
    w->repeat = 0;
    w->run++;
    return element;
}

/* ---- one rank's ------------------------------------------------------------ */

static trace_item_t *
item_of(const fsdp_trace_t *trace, const fsdp_trace_record_t *record, int piece)
{
    return trace->item[(record->piece - trace->piece) + piece];
}

static fsdp_status_t
read_values(fsdp_trace_t *trace, const trace_item_t *item, uint64_t begin,
            size_t count, double *out)
{
    const fsdp_safetensors_entry_t *entry;
    fsdp_status_t status = open_entry(trace, item, &entry);
    size_t size = fsdp_dtype_size(item->dtype);
    void *raw = fsdp_alloc(FSDP_MEM_OTHER,
                           (count < BLOCK ? count : (size_t)BLOCK) * size);
    for (size_t i = 0; i < count && status == FSDP_OK; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        status = fsdp_safetensors_read(trace->part[item->part].file, entry,
                                       begin + i, n, raw);
        if (status == FSDP_OK)
            to_double(item->dtype, raw, out + i, n);
    }
    fsdp_free(raw);
    return status;
}

const fsdp_trace_piece_t *
fsdp_trace_find_piece(const fsdp_trace_record_t *record, int rank)
{
    for (int i = 0; i < record->num_pieces; i++)
        if (record->piece[i].rank == rank)
            return &record->piece[i];
    return NULL;
}

fsdp_status_t
fsdp_trace_read_rank(fsdp_trace_t *trace, const fsdp_trace_record_t *record,
                     int rank, double *values, uint64_t *element, size_t *count)
{
    const fsdp_trace_piece_t *piece = fsdp_trace_find_piece(record, rank);
    *count = 0;
    if (piece == NULL)
        return FSDP_OK;
    const trace_item_t *item =
        item_of(trace, record, (int)(piece - record->piece));
    walker_t walker = {.item = item};
    *count = (size_t)item->numel;
    for (size_t i = 0; element != NULL && i < *count; i++)
        element[i] = next_element(&walker);
    return values != NULL ? read_values(trace, item, 0, *count, values)
                          : FSDP_OK;
}

/* ---- all ranks' ------------------------------------------------------------- */

typedef struct whole {
    fsdp_trace_t *trace;
    const fsdp_trace_record_t *record;
    double *values;
    int *owner;
    fsdp_trace_conflict_t conflict;
} whole_t;

static bool
same(double a, double b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* False: the rank has had the element already. */
static bool
put_value(whole_t *w, int piece, uint64_t element, double value)
{
    int rank = w->record->piece[piece].rank, owner = w->owner[element];
    if (owner < 0) {
        w->values[element] = value;
        w->owner[element] = rank;
        return true;
    }
    fsdp_trace_conflict_t *c = &w->conflict;
    if (!same(w->values[element], value) && (!c->found || element < c->element))
        *c = (fsdp_trace_conflict_t){.found = true,
                                     .element = element,
                                     .rank = {owner, rank},
                                     .value = {w->values[element], value}};
    return owner != rank;
}

static fsdp_status_t
put_piece(whole_t *w, int piece)
{
    const trace_item_t *item = item_of(w->trace, w->record, piece);
    walker_t walker = {.item = item};
    double *block = fsdp_alloc(FSDP_MEM_OTHER, BLOCK * sizeof *block);
    fsdp_status_t status = FSDP_OK;
    bool good = true;
    for (uint64_t i = 0; i < item->numel && status == FSDP_OK; i += BLOCK) {
        size_t n = item->numel - i < BLOCK ? (size_t)(item->numel - i) : BLOCK;
        status = read_values(w->trace, item, i, n, block);
        for (size_t k = 0; k < n && status == FSDP_OK; k++)
            good &= put_value(w, piece, next_element(&walker), block[k]);
    }
    fsdp_free(block);
    if (status == FSDP_OK && !good)
        status = fsdp_error(
            FSDP_ERR_INPUT, "%s: \"pieces\" gives an element of %s/%s twice",
            w->trace->part[item->part].path, fsdp_trace_phase_name(item->phase),
            item->name->text);
    return status;
}

fsdp_status_t
fsdp_trace_read(fsdp_trace_t *trace, const fsdp_trace_record_t *record,
                double *values, int *owner, fsdp_trace_conflict_t *conflict)
{
    whole_t w = {
        .trace = trace, .record = record, .values = values, .owner = owner};
    fsdp_status_t status = FSDP_OK;
    if (owner == NULL)
        w.owner =
            fsdp_alloc(FSDP_MEM_OTHER, (size_t)record->numel * sizeof *w.owner);
    for (uint64_t i = 0; i < record->numel; i++) {
        values[i] = NAN;
        w.owner[i] = -1;
    }
    for (int p = 0; p < record->num_pieces && status == FSDP_OK; p++)
        status = put_piece(&w, p);
    if (owner == NULL)
        fsdp_free(w.owner);
    if (conflict != NULL)
        *conflict = w.conflict;
    return status;
}
