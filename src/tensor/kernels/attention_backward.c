#include <omp.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "tensor/kernels/attention_tile.h"
#include "tensor/threads/parallel.h"

/* With S = scale q k, P = exp(S - lse), the factors F of dropout and
 * Delta_i = sum over d of dout out, which is the sum over j of P dP,
 *     dV_j = sum over i of P F dout_i       dP = F (dout_i v_j)
 *     dS   = P (dP - Delta_i)
 *     dQ_i = scale sum over j of dS k_j     dK_j = sum over i of dS scale q_i
 * P is computed again from the forward's lse.  A key head of a sample is one
 * item of work: the queries of all heads that read it add to the same dK and
 * dV, always head after head, in ascending order. */

typedef struct backward {
    attention_t a;
    const real_t *q, *k, *v, *out, *lse, *dout;
    real_t *dq, *dk, *dv;
    real_t *scratch;
    size_t padded;        /* D, made a multiple of PANEL */
    size_t scratch_numel; /* of one thread */
} backward_t;

/* What a thread works in. */
typedef struct workspace {
    real_t *queries, *query_rows; /* [D][TILE], [TILE][padded]: scale q */
    real_t *dout, *dout_rows;     /* [D][TILE], [TILE][padded] */
    real_t *dqueries;             /* [D][TILE] */
    real_t *keys;                 /* [TILE][D] */
    real_t *tile;                 /* [TILE keys][TILE queries]: S, then P F */
    real_t *dtile;                /* the same: dout v, then dS */
    real_t *factor;               /* the same: F */
    real_t *lse, *delta;          /* [TILE] */
    real_t *scale;                /* [TILE], all the same */
} workspace_t;

static size_t
workspace_numel(const backward_t *o)
{
    return (4 * o->a.depth + 2 * o->padded + 3 * TILE + 3) * TILE;
}

static real_t *
take(real_t **next, size_t numel)
{
    real_t *taken = *next;
    *next += numel;
    return taken;
}

static workspace_t
workspace(const backward_t *o)
{
    real_t *next = o->scratch + (size_t)omp_get_thread_num() * o->scratch_numel;
    size_t panels = o->a.depth * TILE, rows = o->padded * TILE;
    workspace_t w;
    w.queries = take(&next, panels);
    w.query_rows = take(&next, rows);
    w.dout = take(&next, panels);
    w.dout_rows = take(&next, rows);
    w.dqueries = take(&next, panels);
    w.keys = take(&next, panels);
    w.tile = take(&next, TILE * TILE);
    w.dtile = take(&next, TILE * TILE);
    w.factor = take(&next, TILE * TILE);
    w.lse = take(&next, TILE);
    w.delta = take(&next, TILE);
    w.scale = take(&next, TILE);
    return w;
}

/* S to P and dout v to dS, for a panel of `keys` keys. */
FSDP_CLONES static void
gradients(size_t keys, const real_t *restrict lse, const real_t *restrict delta,
          real_t *restrict tile, real_t *restrict dtile)
{
    for (size_t j = 0; j < keys; j++, tile += TILE, dtile += TILE) {
#pragma omp simd
        for (size_t l = 0; l < PANEL; l++) {
            real_t p = real_exp(tile[l] - lse[l]);
            tile[l] = p;
            dtile[l] = p * (dtile[l] - delta[l]);
        }
    }
}

/* The same with dropout: S to P F. */
FSDP_CLONES static void
dropped_gradients(size_t keys, const real_t *restrict lse,
                  const real_t *restrict delta, const real_t *restrict factor,
                  real_t *restrict tile, real_t *restrict dtile)
{
    for (size_t j = 0; j < keys;
         j++, tile += TILE, dtile += TILE, factor += TILE) {
#pragma omp simd
        for (size_t l = 0; l < PANEL; l++) {
            real_t p = real_exp(tile[l] - lse[l]);
            tile[l] = p * factor[l];
            dtile[l] = p * (dtile[l] * factor[l] - delta[l]);
        }
    }
}

/* P and dS of a panel of queries, and its share of dQ. */
static void
backward_panel(const attention_t *a, const attention_place_t *place,
               const workspace_t *w, const real_t *k, const real_t *v,
               size_t panel)
{
    size_t at = panel * PANEL, keys = attention_keys(a, place, panel);
    real_t *tile = w->tile + at, *dtile = w->dtile + at;
    attention_dots(a, keys, k, w->queries + at, tile);
    attention_mask(place, panel, keys, tile);
    attention_dots(a, keys, v, w->dout + at, dtile);
    if (a->dropout == NULL)
        gradients(keys, w->lse + at, w->delta + at, tile, dtile);
    else
        dropped_gradients(keys, w->lse + at, w->delta + at, w->factor + at,
                          tile, dtile);
    attention_combine(a, keys, w->keys, dtile, NULL, w->dqueries + at);
}

/* to[j] = sum over i of tile[j][i] rows[i], plus to[j] if `add`, for `count`
 * keys of the tile from `first` on and queries from `first_query` on. */
static void
add_rows(const backward_t *o, const real_t *tile, const real_t *rows,
         size_t first, size_t count, size_t first_query, size_t queries,
         bool add, real_t *to)
{
    size_t depth = o->a.depth;
    for (size_t d = 0; d < depth; d += PANEL) {
        attention_product_t sums = {
            .rows = count,
            .terms = queries - first_query,
            .a = tile + first * TILE + first_query,
            .a_row = TILE,
            .a_term = 1,
            .b = rows + first_query * o->padded + d,
            .b_term = o->padded,
            .c = to + first * o->a.kv_row + d,
            .c_row = o->a.kv_row,
            .width = depth - d < PANEL ? depth - d : PANEL,
            .add = add,
        };
        attention_product(&sums);
    }
}

/* The tile's share of dK and dV, which begin at `at`.  The tile on the diagonal
 * of the group's first head is the first that adds to its keys.  On a diagonal
 * keys are taken a panel at a time, since queries before that panel do not meet
 * them. */
static void
add_key_gradients(const backward_t *o, const attention_place_t *place,
                  const workspace_t *w, size_t queries, size_t at)
{
    bool diagonal = place->key == place->query;
    bool add = !diagonal || place->head % o->a.group != 0;
    size_t keys = diagonal ? queries : TILE, step = diagonal ? PANEL : TILE;
    for (size_t j = 0; j < keys; j += step) {
        size_t count = keys - j < step ? keys - j : step;
        size_t first_query = diagonal ? j : 0;
        add_rows(o, w->tile, w->dout_rows, j, count, first_query, queries, add,
                 o->dv + at);
        add_rows(o, w->dtile, w->query_rows, j, count, first_query, queries,
                 add, o->dk + at);
    }
}

static void
backward_tile(const backward_t *o, const attention_place_t *place,
              const workspace_t *w, size_t queries)
{
    const attention_t *a = &o->a;
    size_t row = place->sample * a->positions + place->key;
    size_t at = row * a->kv_row + place->head / a->group * a->depth;
    size_t keys = attention_keys(a, place, TILE / PANEL - 1);
    attention_pack(o->k + at, a->kv_row, keys, a->depth, 1, w->keys, a->depth);
    if (a->dropout != NULL)
        attention_dropout(a, place, w->factor);
    for (size_t p = 0; p * PANEL < queries; p++)
        backward_panel(a, place, w, o->k + at, o->v + at, p);
    add_key_gradients(o, place, w, queries, at);
}

/* sum[i] = sum over d of x[i][d] y[i][d], rows `stride` apart */
FSDP_CLONES static void
row_products(const real_t *x, const real_t *y, size_t stride, size_t rows,
             size_t depth, real_t *sum)
{
    for (size_t i = 0; i < rows; i++, x += stride, y += stride) {
        real_t lanes[LANES] = {0};
        size_t d = 0;
        for (; d + LANES <= depth; d += LANES) {
#pragma omp simd
            for (size_t l = 0; l < LANES; l++)
                lanes[l] += x[d + l] * y[d + l];
        }
        for (size_t l = 0; d + l < depth; l++)
            lanes[l] += x[d + l] * y[d + l];
        sum[i] = lanes_sum(lanes);
    }
}

/* Brings what belongs to the queries at `place` into the workspace. */
static void
load_queries(const backward_t *o, const attention_place_t *place,
             const workspace_t *w, size_t queries)
{
    const attention_t *a = &o->a;
    size_t row = place->sample * a->positions + place->query;
    size_t column = place->head * a->depth;
    const real_t *q = o->q + row * a->q_row + column;
    const real_t *dout = o->dout + row * a->channels + column;
    const real_t *lse =
        o->lse + (place->sample * a->heads + place->head) * a->positions +
        place->query;

    attention_transpose(q, a->q_row, queries, a->depth, a->scale, w->queries);
    attention_pack(q, a->q_row, queries, a->depth, a->scale, w->query_rows,
                   o->padded);
    attention_transpose(dout, a->channels, queries, a->depth, 1, w->dout);
    attention_pack(dout, a->channels, queries, a->depth, 1, w->dout_rows,
                   o->padded);
    memset(w->dqueries, 0, a->depth * TILE * sizeof *w->dqueries);
    memset(w->lse, 0, TILE * sizeof *w->lse);
    memset(w->delta, 0, TILE * sizeof *w->delta);
    memcpy(w->lse, lse, queries * sizeof *w->lse);
    row_products(dout, o->out + row * a->channels + column, a->channels,
                 queries, a->depth, w->delta);
}

static void
backward_head(const backward_t *o, size_t sample, size_t head)
{
    const attention_t *a = &o->a;
    attention_place_t place = {.sample = sample, .head = head};
    workspace_t w = workspace(o);
    for (size_t i = 0; i < TILE; i++)
        w.scale[i] = a->scale;
    for (; place.query < a->positions; place.query += TILE) {
        size_t left = a->positions - place.query;
        size_t queries = left < TILE ? left : TILE;
        size_t row = place.sample * a->positions + place.query;
        load_queries(o, &place, &w, queries);
        for (place.key = 0; place.key <= place.query; place.key += TILE)
            backward_tile(o, &place, &w, queries);
        attention_untranspose(w.dqueries, w.scale, queries, a->depth,
                              o->dq + row * a->q_row + head * a->depth,
                              a->q_row);
    }
}

static void
backward_blocks(const void *context, size_t begin, size_t end)
{
    const backward_t *o = context;
    size_t kv_heads = o->a.kv_heads, group = o->a.group;
    for (size_t index = begin; index < end; index++)
        for (size_t h = 0; h < group; h++)
            backward_head(o, index / kv_heads, index % kv_heads * group + h);
}

static void
backward_all(backward_t *o)
{
    size_t threads = (size_t)fsdp_get_num_threads();
    o->padded = (o->a.depth + PANEL - 1) / PANEL * PANEL;
    o->scratch_numel = workspace_numel(o);
    o->scratch = fsdp_alloc(FSDP_MEM_ACTIVATION,
                            threads * o->scratch_numel * sizeof(real_t));
    fsdp_parallel_for(o->a.batch * o->a.kv_heads, 1, backward_blocks, o);
    fsdp_free(o->scratch);
}

void
K(attention_backward)(fsdp_attention_shape_t shape, const void *qkv,
                      const void *out, const void *lse, const void *dout,
                      void *dqkv, const fsdp_dropout_key_t *dropout)
{
    backward_t o = {.a = attention_packed(shape, dropout),
                    .q = qkv,
                    .out = out,
                    .lse = lse,
                    .dout = dout,
                    .dq = dqkv};
    o.k = o.q + o.a.channels;
    o.v = o.k + o.a.channels;
    o.dk = o.dq + o.a.channels;
    o.dv = o.dk + o.a.channels;
    backward_all(&o);
}

void
K(grouped_attention_backward)(fsdp_attention_shape_t shape, const void *q,
                              const void *k, const void *v, const void *out,
                              const void *lse, const void *dout, void *dq,
                              void *dk, void *dv,
                              const fsdp_dropout_key_t *dropout)
{
    backward_t o = {.a = attention_describe(shape, dropout),
                    .q = q,
                    .k = k,
                    .v = v,
                    .out = out,
                    .lse = lse,
                    .dout = dout,
                    .dq = dq,
                    .dk = dk,
                    .dv = dv};
    backward_all(&o);
}
