#include <omp.h>
#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "tensor/kernels/attention_tile.h"
#include "tensor/threads/parallel.h"

/* The softmax is taken online, tile by tile (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao et al., "FlashAttention",
 * 2022): with the largest score so far in `max`, `sum` and `result` hold the
 * sums of exp(score - max) and of exp(score - max) value, and are scaled down
 * when a later tile raises the maximum. */

typedef struct forward {
    attention_t a;
    const real_t *q, *k, *v;
    real_t *out, *lse;
    real_t *scratch;
    size_t scratch_numel; /* of one thread */
} forward_t;

/* What a thread works in. */
typedef struct workspace {
    real_t *queries;   /* [D][TILE]: scale q */
    real_t *result;    /* [D][TILE]: sums of exp v */
    real_t *values;    /* [TILE][D]: v */
    real_t *tile;      /* [TILE keys][TILE queries]: scores, then exp */
    real_t *factor;    /* the same: of dropout */
    real_t *max, *sum; /* [TILE] */
} workspace_t;

static size_t
workspace_numel(const attention_t *a)
{
    return (3 * a->depth + 2 * TILE + 2) * TILE;
}

static workspace_t
workspace(const forward_t *o)
{
    real_t *next = o->scratch + (size_t)omp_get_thread_num() * o->scratch_numel;
    size_t panels = o->a.depth * TILE;
    workspace_t w = {.queries = next,
                     .result = next + panels,
                     .values = next + 2 * panels,
                     .tile = next + 3 * panels};
    w.factor = w.tile + TILE * TILE;
    w.max = w.factor + TILE * TILE;
    w.sum = w.max + TILE;
    return w;
}

/* Scores of a panel to exp(score - max); `keep` is what earlier sums are to be
 * multiplied by. */
FSDP_CLONES static void
exponentials(size_t keys, real_t *restrict scores, real_t *restrict max,
             real_t *restrict sum, real_t *restrict keep)
{
    real_t top[PANEL], part[PANEL];
#pragma omp simd
    for (size_t l = 0; l < PANEL; l++) {
        top[l] = max[l];
        part[l] = 0;
    }
    for (size_t j = 0; j < keys; j++) {
#pragma omp simd
        for (size_t l = 0; l < PANEL; l++) {
            real_t s = scores[j * TILE + l];
            top[l] = s > top[l] ? s : top[l];
        }
    }
    for (size_t j = 0; j < keys; j++) {
#pragma omp simd
        for (size_t l = 0; l < PANEL; l++) {
            real_t e = real_exp(scores[j * TILE + l] - top[l]);
            scores[j * TILE + l] = e;
            part[l] += e;
        }
    }
#pragma omp simd
    for (size_t l = 0; l < PANEL; l++) {
        keep[l] = real_exp(max[l] - top[l]);
        sum[l] = sum[l] * keep[l] + part[l];
        max[l] = top[l];
    }
}

FSDP_CLONES static void
drop_panel(size_t keys, const real_t *restrict factor, real_t *restrict tile)
{
    for (size_t j = 0; j < keys; j++) {
#pragma omp simd
        for (size_t l = 0; l < PANEL; l++)
            tile[j * TILE + l] *= factor[j * TILE + l];
    }
}

/* Adds one tile of keys, whose first row of k is `k`, to a panel's sums. */
static void
forward_panel(const attention_t *a, const attention_place_t *place,
              const workspace_t *w, const real_t *k, size_t panel)
{
    size_t at = panel * PANEL;
    size_t keys = attention_keys(a, place, panel);
    real_t keep[PANEL] __attribute__((aligned(64)));

    attention_dots(a, keys, k, w->queries + at, w->tile + at);
    attention_mask(place, panel, keys, w->tile + at);
    exponentials(keys, w->tile + at, w->max + at, w->sum + at, keep);
    if (a->dropout != NULL)
        drop_panel(keys, w->factor + at, w->tile + at);
    attention_combine(a, keys, w->values, w->tile + at, keep, w->result + at);
}

static void
forward_tile(const forward_t *o, const attention_place_t *place,
             const workspace_t *w, size_t queries)
{
    const attention_t *a = &o->a;
    size_t row = place->sample * a->positions + place->key;
    size_t at = row * a->kv_row + place->head / a->group * a->depth;
    size_t keys = attention_keys(a, place, TILE / PANEL - 1);
    attention_pack(o->v + at, a->kv_row, keys, a->depth, 1, w->values,
                   a->depth);
    if (a->dropout != NULL)
        attention_dropout(a, place, w->factor);
    for (size_t p = 0; p * PANEL < queries; p++)
        forward_panel(a, place, w, o->k + at, p);
}

FSDP_CLONES static void
finish(const workspace_t *w, size_t queries, real_t *lse)
{
    for (size_t i = 0; i < queries; i++)
        lse[i] = w->max[i] + real_log(w->sum[i]);
    for (size_t i = 0; i < queries; i++)
        w->sum[i] = 1 / w->sum[i];
}

/* One head of one sample, TILE queries.  The last queries come first, as they
 * have the most keys. */
static void
forward_queries(const forward_t *o, size_t index)
{
    const attention_t *a = &o->a;
    size_t tiles = (a->positions + TILE - 1) / TILE;
    attention_place_t place = {.sample = index / tiles / a->heads,
                               .head = index / tiles % a->heads,
                               .query = (tiles - 1 - index % tiles) * TILE};
    size_t left = a->positions - place.query;
    size_t queries = left < TILE ? left : TILE;
    size_t row = place.sample * a->positions + place.query;
    size_t column = place.head * a->depth;
    workspace_t w = workspace(o);

    attention_transpose(o->q + row * a->q_row + column, a->q_row, queries,
                        a->depth, a->scale, w.queries);
    memset(w.result, 0, a->depth * TILE * sizeof *w.result);
    for (size_t i = 0; i < TILE; i++) {
        w.max[i] = -REAL_INFINITY;
        w.sum[i] = 0;
    }
    for (; place.key <= place.query; place.key += TILE)
        forward_tile(o, &place, &w, queries);
    finish(&w, queries,
           o->lse + (place.sample * a->heads + place.head) * a->positions +
               place.query);
    attention_untranspose(w.result, w.sum, queries, a->depth,
                          o->out + row * a->channels + column, a->channels);
}

static void
forward_blocks(const void *context, size_t begin, size_t end)
{
    for (size_t index = begin; index < end; index++)
        forward_queries(context, index);
}

static void
forward_all(forward_t *o)
{
    const attention_t *a = &o->a;
    size_t tiles = (a->positions + TILE - 1) / TILE;
    size_t threads = (size_t)fsdp_get_num_threads();
    o->scratch_numel = workspace_numel(a);
    o->scratch = fsdp_alloc(FSDP_MEM_ACTIVATION,
                            threads * o->scratch_numel * sizeof(real_t));
    fsdp_parallel_for(a->batch * a->heads * tiles, 1, forward_blocks, o);
    fsdp_free(o->scratch);
}

void
K(attention)(fsdp_attention_shape_t shape, const void *qkv, void *out,
             void *lse, const fsdp_dropout_key_t *dropout)
{
    forward_t o = {.a = attention_packed(shape, dropout),
                   .q = qkv,
                   .out = out,
                   .lse = lse};
    o.k = o.q + o.a.channels;
    o.v = o.k + o.a.channels;
    forward_all(&o);
}

void
K(grouped_attention)(fsdp_attention_shape_t shape, const void *q, const void *k,
                     const void *v, void *out, void *lse,
                     const fsdp_dropout_key_t *dropout)
{
    forward_t o = {.a = attention_describe(shape, dropout),
                   .q = q,
                   .k = k,
                   .v = v,
                   .out = out,
                   .lse = lse};
    forward_all(&o);
}
