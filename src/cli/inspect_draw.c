/* Pictures of how a model is cut.
 *
 *      transformer.h.0.attn.c_attn.weight  [128, 384] float32
 *          dim 0 over 3 ranks, rows 43 43 42, 384 elements of padding
 *          000000000000000011111111111111112222222222222222.
 *
 * A character of the bar is a slice of rows (of elements, for FSDP1): the rank of
 * its last one, or a dot if that is padding.  Of experts that P ranks share out,
 * rank r has a chunk of part r mod P. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"

enum { BAR = 64 };

static char
letter(int rank)
{
    static const char letters[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return letters[rank % (int)(sizeof letters - 1)];
}

static fsdp_layout_t
layout_of(const plan_param_t *param, int ranks, int rank)
{
    fsdp_layout_t l = {.kind = FSDP_LAYOUT_CHUNKS,
                       .ndim = param->ndim,
                       .num_ranks = ranks,
                       .rank = rank,
                       .part_dim = -1,
                       .num_parts = 1,
                       .part_groups = 1,
                       .primary = true};
    memcpy(l.shape, param->shape, sizeof l.shape);
    l.shape[0] /= (size_t)param->parts;
    l.dim = param->dim;
    return l;
}

/* The rank that has chunk i, part after part. */
static int
rank_of_chunk(int i, int ranks, int parts)
{
    int of_part = ranks / parts;
    return i % of_part * parts + i / of_part;
}

static int64_t
whole_numel(const plan_param_t *param)
{
    return param->numel * param->parts;
}

static void
print_shape(const plan_param_t *param, fsdp_dtype_t dtype)
{
    printf("    %s  [", param->name);
    for (int d = 0; d < param->ndim; d++)
        printf("%s%zu", d > 0 ? ", " : "", param->shape[d]);
    printf("] %s\n", fsdp_dtype_name(dtype));
}

/* ---- what each rank has -------------------------------------------------- */

/* "43 43 42", or "43 x 7 and 1" ... as runs of ranks with the same. */
static void
print_counts(const int64_t *count, int ranks)
{
    for (int r = 0, same; r < ranks; r += same) {
        for (same = 1; r + same < ranks && count[r + same] == count[r];)
            same++;
        if (same > 4)
            printf(" %" PRId64 " (%d ranks)", count[r], same);
        else
            for (int i = 0; i < same; i++)
                printf(" %" PRId64, count[r]);
    }
}

static void
print_empty(const int64_t *count, int ranks)
{
    int first = ranks, last = -1, empty = 0;
    for (int r = 0; r < ranks; r++) {
        if (count[r] > 0)
            continue;
        first = r < first ? r : first;
        last = r;
        empty++;
    }
    if (empty == 1)
        printf("        rank %d has nothing of it\n", first);
    else if (empty == last - first + 1)
        printf("        ranks %d to %d have nothing of it\n", first, last);
    else if (empty > 0)
        printf("        %d ranks have nothing of it\n", empty);
}

/* Slices of `total` places: a rank's run of `width` places, of which the first
 * `count` are taken. */
static void
print_bar(const int64_t *count, int ranks, int parts, int64_t width)
{
    int64_t total = width * ranks, slices = total < BAR ? total : BAR;
    printf("        ");
    for (int64_t i = 0; i < slices; i++) {
        int64_t place = (i + 1) * total / slices - 1;
        int rank = rank_of_chunk((int)(place / width), ranks, parts);
        putchar(place % width < count[rank] ? letter(rank) : '.');
    }
    printf("\n");
}

/* ---- FSDP2: rows --------------------------------------------------------- */

static void
draw_rows(const plan_sim_t *sim, const plan_param_t *param, int64_t *rows)
{
    int ranks = sim->config.shard, of_part = ranks / param->parts;
    int64_t row = whole_numel(param) / (int64_t)param->shape[param->dim];
    if (param->dim > 0)
        row /= param->parts;
    for (int r = 0; r < ranks; r++) {
        fsdp_layout_t l = layout_of(param, of_part, r / param->parts);
        rows[r] = (int64_t)fsdp_layout_numel(&l) / row;
    }
    fsdp_layout_t l = layout_of(param, of_part, 0);
    int64_t chunk = (int64_t)fsdp_layout_max_numel(&l);
    int64_t padding = chunk * ranks - whole_numel(param);
    printf("        ");
    if (param->parts > 1)
        printf("dim 0 in %d parts, ", param->parts);
    printf("dim %d over %d rank%s, %s", param->dim, of_part,
           of_part > 1 ? "s" : "", param->dim == 0 ? "rows" : "columns");
    print_counts(rows, ranks);
    if (padding > 0)
        printf("; padding %" PRId64 " bytes",
               padding * plan_size(sim->config.dtype));
    printf("\n");
    print_bar(rows, ranks, param->parts, chunk / row);
    print_empty(rows, ranks);
}

/* ---- FSDP1: ranges of a flat parameter ----------------------------------- */

static bool
keeps_all(const plan_sim_t *sim)
{
    return sim->config.strategy == PLAN_NO_SHARD || sim->config.shard == 1;
}

/* Each slice of the parameter shows whose chunk of the flat one it lies in. */
static void
print_flat_bar(const plan_param_t *param, int64_t offset, int64_t chunk)
{
    int64_t slices = param->numel < BAR ? param->numel : BAR;
    printf("        ");
    for (int64_t i = 0; i < slices; i++)
        putchar(letter((int)((offset + i * param->numel / slices) / chunk)));
    printf("\n");
}

static void
draw_range(const plan_sim_t *sim, const plan_unit_t *unit,
           const plan_param_t *param, int64_t offset)
{
    int ranks = sim->config.shard;
    if (keeps_all(sim)) {
        printf("        whole on every rank\n");
        return;
    }
    printf("        elements %" PRId64 " to %" PRId64 " of the flat parameter:",
           offset, offset + param->numel - 1);
    for (int r = 0; r < ranks; r++) {
        fsdp_layout_t l = layout_of(param, ranks, r);
        l.kind = FSDP_LAYOUT_FLAT;
        l.flat_offset = (size_t)offset;
        l.flat_chunk = (size_t)(unit->flat / ranks);
        size_t numel = fsdp_layout_numel(&l), begin = fsdp_layout_begin(&l);
        if (numel > 0)
            printf(" %d has [%zu, %zu)", r, begin, begin + numel);
    }
    printf("\n");
    print_flat_bar(param, offset, unit->flat / ranks);
}

/* ---- units --------------------------------------------------------------- */

static void
print_unit(const plan_sim_t *sim, const plan_unit_t *unit)
{
    const plan_config_t *c = &sim->config;
    bool flat = c->strategy != PLAN_FSDP2;
    int ranks = c->shard / unit->parts; /* that gather one */
    int64_t whole = flat ? unit->flat : ranks * unit->chunk;
    int64_t padding = whole * unit->parts - unit->numel;
    printf("\nunit %s: %d parameters, %" PRId64 " elements",
           unit->name[0] != '\0' ? unit->name : "(root)", unit->num_params,
           unit->numel);
    if (flat)
        printf(", one flat parameter of %" PRId64, unit->flat);
    if (ranks > 1 && !(flat && keeps_all(sim)))
        printf("; all-gather of %" PRId64 " bytes in %s, %" PRId64
               " from each rank",
               whole * plan_size(sim->data_dtype),
               fsdp_dtype_name(sim->data_dtype),
               whole / ranks * plan_size(sim->data_dtype));
    if (padding > 0)
        printf("; padding %" PRId64 " elements", padding);
    printf("\n");
}

static void
draw_unit(const plan_sim_t *sim, const plan_unit_t *unit, int64_t *rows)
{
    int64_t offset = 0;
    if (unit->num_params == 0)
        return;
    print_unit(sim, unit);
    for (int p = 0; p < unit->num_params; p++) {
        const plan_param_t *param = &unit->param[p];
        print_shape(param, sim->config.dtype);
        if (sim->config.strategy == PLAN_FSDP2)
            draw_rows(sim, param, rows);
        else
            draw_range(sim, unit, param, offset);
        offset += param->numel;
    }
}

void
inspect_draw(const plan_sim_t *sim)
{
    const plan_config_t *c = &sim->config;
    int64_t *rows = fsdp_alloc(FSDP_MEM_OTHER, (size_t)c->shard * sizeof *rows);
    printf("%" PRId64 " parameters in %d units, over %d rank%s",
           plan_model_numel(sim), sim->num_units, c->shard,
           c->shard > 1 ? "s" : "");
    if (c->replicas > 1)
        printf(" of each of %d replicas, which hold the same", c->replicas);
    if (c->strategy == PLAN_ZERO1 || c->strategy == PLAN_ZERO2)
        printf("\nparameters are whole on every rank; the picture is of the "
               "optimizer's state%s",
               c->strategy == PLAN_ZERO2 ? " and of the gradients" : "");
    printf("\n");
    for (int i = 0; i < sim->num_units; i++)
        draw_unit(sim, &sim->unit[i], rows);
    fsdp_free(rows);
}
