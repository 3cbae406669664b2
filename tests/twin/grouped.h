/** \file grouped.h  Twin of attention with grouped queries.
 *
 *  q, k and v side by side as twin/attention.h has them, each key head repeated
 *  for the query heads that read it; the gradients of the copies are added up.
 */
#ifndef TWIN_GROUPED_H
#define TWIN_GROUPED_H

#include <string.h>

#include "fsdp/memory.h"
#include "twin/attention.h"

typedef struct twin_grouped {
    size_t batch, positions, heads, kv_heads, depth;
    const double *q, *k, *v; /**< [B,T,H D], [B,T,G D] twice; borrowed */
} twin_grouped_t;

enum { TWIN_OUT, TWIN_LSE, TWIN_DQ, TWIN_DK, TWIN_DV, TWIN_GROUPED };

/* Where element d of head h of row r is in a matrix [rows][3 H D], part p. */
static inline size_t
twin_packed_at(const twin_grouped_t *g, size_t r, size_t p, size_t h, size_t d)
{
    return ((r * 3 + p) * g->heads + h) * g->depth + d;
}

static inline size_t
twin_key_at(const twin_grouped_t *g, size_t r, size_t h, size_t d)
{
    size_t group = g->heads / g->kv_heads;
    return (r * g->kv_heads + h / group) * g->depth + d;
}

static inline void
twin_grouped_pack(const twin_grouped_t *g, double *qkv)
{
    for (size_t r = 0; r < g->batch * g->positions; r++)
        for (size_t h = 0; h < g->heads; h++)
            for (size_t d = 0; d < g->depth; d++) {
                size_t at = (r * g->heads + h) * g->depth + d;
                qkv[twin_packed_at(g, r, 0, h, d)] = g->q[at];
                qkv[twin_packed_at(g, r, 1, h, d)] =
                    g->k[twin_key_at(g, r, h, d)];
                qkv[twin_packed_at(g, r, 2, h, d)] =
                    g->v[twin_key_at(g, r, h, d)];
            }
}

static inline void
twin_grouped_unpack(const twin_grouped_t *g, const double *dqkv, double *dq,
                    double *dk, double *dv)
{
    size_t rows = g->batch * g->positions, kv = g->kv_heads * g->depth;
    memset(dk, 0, rows * kv * sizeof *dk);
    memset(dv, 0, rows * kv * sizeof *dv);
    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < g->heads; h++)
            for (size_t d = 0; d < g->depth; d++) {
                size_t at = (r * g->heads + h) * g->depth + d;
                dq[at] = dqkv[twin_packed_at(g, r, 0, h, d)];
                dk[twin_key_at(g, r, h, d)] +=
                    dqkv[twin_packed_at(g, r, 1, h, d)];
                dv[twin_key_at(g, r, h, d)] +=
                    dqkv[twin_packed_at(g, r, 2, h, d)];
            }
}

/** Owns qkv, which the caller frees. */
static inline twin_attention_t
twin_grouped_attention(const twin_grouped_t *g, double **qkv)
{
    size_t n = g->batch * g->positions * g->heads * g->depth;
    *qkv = fsdp_alloc(FSDP_MEM_OTHER, 3 * n * sizeof **qkv);
    twin_grouped_pack(g, *qkv);
    return (twin_attention_t){.batch = g->batch,
                              .positions = g->positions,
                              .channels = g->heads * g->depth,
                              .heads = g->heads,
                              .qkv = *qkv};
}

/** out and lse, and how far from them a kernel with this arithmetic can be. */
static inline void
twin_grouped_forward(const twin_grouped_t *g,
                     const twin_arithmetic_t *arithmetic,
                     double *const value[TWIN_GROUPED],
                     double *const bound[TWIN_GROUPED])
{
    double *qkv;
    twin_attention_t a = twin_grouped_attention(g, &qkv);
    twin_attention_forward(&a, value[TWIN_OUT], value[TWIN_LSE]);
    twin_attention_forward_bound(&a, arithmetic, bound[TWIN_OUT],
                                 bound[TWIN_LSE]);
    fsdp_free(qkv);
}

/** dq, dk, dv of sum(dout out), from an out and lse that are off by their
 *  bounds.  Bounds of sums are the sums of the bounds, each term being added to
 *  H / G times as many partial sums. */
static inline void
twin_grouped_backward(const twin_grouped_t *g,
                      const twin_arithmetic_t *arithmetic, const double *dout,
                      double *const value[TWIN_GROUPED],
                      double *const bound[TWIN_GROUPED])
{
    double *qkv;
    twin_attention_t a = twin_grouped_attention(g, &qkv);
    size_t n = 3 * a.batch * a.positions * a.channels;
    twin_arithmetic_t many = *arithmetic;
    size_t tiles = (g->positions + many.tile - 1) / many.tile;
    many.more = g->heads / g->kv_heads * tiles;
    double *grad = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *grad);
    twin_attention_backward(&a, dout, grad);
    twin_grouped_unpack(g, grad, value[TWIN_DQ], value[TWIN_DK],
                        value[TWIN_DV]);
    twin_attention_backward_bound(&a, &many, dout, bound[TWIN_OUT],
                                  bound[TWIN_LSE], grad);
    twin_grouped_unpack(g, grad, bound[TWIN_DQ], bound[TWIN_DK],
                        bound[TWIN_DV]);
    fsdp_free(qkv);
    fsdp_free(grad);
}

#endif
