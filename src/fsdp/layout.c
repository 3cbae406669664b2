#include "fsdp/layout.h"

#include <string.h>

/* A tensor cut along `dim`, seen as [outer, rows, inner]. */
typedef struct cut {
    size_t outer, rows, inner;
    size_t begin, end; /* this rank's rows */
} cut_t;

static size_t
min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static cut_t
cut_of(const fsdp_layout_t *l)
{
    cut_t cut = {.outer = 1, .rows = l->shape[l->dim], .inner = 1};
    for (int d = 0; d < l->dim; d++)
        cut.outer *= l->shape[d];
    for (int d = l->dim + 1; d < l->ndim; d++)
        cut.inner *= l->shape[d];
    size_t w = (size_t)l->num_ranks, chunk = (cut.rows + w - 1) / w;
    cut.begin = min(cut.rows, (size_t)l->rank * chunk);
    cut.end = min(cut.rows, cut.begin + chunk);
    return cut;
}

static size_t
parameter_numel(const fsdp_layout_t *l)
{
    size_t numel = 1;
    for (int d = 0; d < l->ndim; d++)
        numel *= l->shape[d];
    return numel;
}

/* The rank's range of the flat parameter, cut to this parameter's elements. */
static void
flat_range(const fsdp_layout_t *l, size_t *begin, size_t *end)
{
    size_t first = l->flat_offset, last = first + parameter_numel(l);
    size_t from = (size_t)l->rank * l->flat_chunk, to = from + l->flat_chunk;
    *begin = (from > first ? min(from, last) : first) - first;
    *end = (to < last ? (to > first ? to : first) : last) - first;
}

fsdp_layout_t
fsdp_layout_whole(const fsdp_parameter_t *parameter)
{
    fsdp_layout_t layout = {
        .kind = FSDP_LAYOUT_WHOLE,
        .ndim = parameter->ndim,
        .num_ranks = 1,
        .part_dim = parameter->part_dim,
        .num_parts = parameter->num_parts,
        .part = parameter->part,
        .part_groups = parameter->part_groups,
        .primary = parameter->part_dim >= 0 || parameter->part == 0,
    };
    memcpy(layout.shape, parameter->shape, sizeof layout.shape);
    return layout;
}

size_t
fsdp_layout_numel(const fsdp_layout_t *layout)
{
    if (layout->kind == FSDP_LAYOUT_WHOLE)
        return parameter_numel(layout);
    if (layout->kind == FSDP_LAYOUT_FLAT) {
        size_t begin, end;
        flat_range(layout, &begin, &end);
        return end - begin;
    }
    cut_t cut = cut_of(layout);
    return cut.outer * (cut.end - cut.begin) * cut.inner;
}

size_t
fsdp_layout_max_numel(const fsdp_layout_t *layout)
{
    size_t numel = parameter_numel(layout);
    if (layout->kind == FSDP_LAYOUT_WHOLE)
        return numel;
    if (layout->kind == FSDP_LAYOUT_FLAT)
        return min(numel, layout->flat_chunk);
    size_t w = (size_t)layout->num_ranks;
    cut_t cut = cut_of(layout);
    return cut.outer * ((cut.rows + w - 1) / w) * cut.inner;
}

size_t
fsdp_layout_whole_numel(const fsdp_layout_t *layout)
{
    size_t parts = layout->part_dim >= 0 ? (size_t)layout->num_parts : 1;
    return parameter_numel(layout) * parts;
}

/* Where element `local` of the buffer lies in the parameter, and how many
 * follow it there without a gap. */
static size_t
element_of(const fsdp_layout_t *l, size_t local, size_t *count)
{
    size_t begin = 0, end = parameter_numel(l);
    if (l->kind == FSDP_LAYOUT_FLAT)
        flat_range(l, &begin, &end);
    if (l->kind != FSDP_LAYOUT_CHUNKS) {
        *count = end - begin - local;
        return begin + local;
    }
    cut_t cut = cut_of(l);
    size_t run = (cut.end - cut.begin) * cut.inner;
    size_t outer = local / run, within = local % run;
    *count = run - within;
    return (outer * cut.rows + cut.begin) * cut.inner + within;
}

bool
fsdp_layout_next_run(const fsdp_layout_t *layout, fsdp_run_t *run)
{
    size_t local = run->local + run->count, here, there;
    if (local >= fsdp_layout_numel(layout))
        return false;
    fsdp_parameter_t part = {.ndim = layout->ndim,
                             .part_dim = layout->part_dim,
                             .num_parts = layout->num_parts,
                             .part = layout->part,
                             .part_groups = layout->part_groups};
    memcpy(part.shape, layout->shape, sizeof part.shape);
    run->local = local;
    run->element = element_of(layout, local, &here);
    run->whole = fsdp_parameter_whole_element(&part, run->element, &there);
    run->count = min(here, there);
    return true;
}

size_t
fsdp_layout_begin(const fsdp_layout_t *layout)
{
    fsdp_run_t run = {0};
    return fsdp_layout_next_run(layout, &run) ? run.element : 0;
}

void
fsdp_layout_place(const fsdp_layout_t *layout, size_t size, const void *local,
                  void *whole)
{
    fsdp_run_t run = {0};
    while (fsdp_layout_next_run(layout, &run))
        memcpy((char *)whole + run.whole * size,
               (const char *)local + run.local * size, run.count * size);
}

void
fsdp_layout_take(const fsdp_layout_t *layout, size_t size, const void *whole,
                 void *local)
{
    fsdp_run_t run = {0};
    while (fsdp_layout_next_run(layout, &run))
        memcpy((char *)local + run.local * size,
               (const char *)whole + run.whole * size, run.count * size);
}
