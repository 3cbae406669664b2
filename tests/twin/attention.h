/** \file attention.h  Causal attention in float64, straight from its formulas.
 *
 *  Whole T x T matrices, libm, no tiles: the twin that src/tensor's attention is
 *  compared with, and the bounds that it must keep.  Letters: B samples, T
 *  positions, C channels, H heads, D = C / H; queries i, keys j <= i.
 */
#ifndef TWIN_ATTENTION_H
#define TWIN_ATTENTION_H

#include <stddef.h>

/** Owns nothing. */
typedef struct twin_attention {
    size_t batch, positions, channels, heads;
    const double *qkv;    /**< [B,T,3C], as tensor/kernels.h packs it */
    const double *factor; /**< [B,H,T,T], what dropout multiplies; NULL: ones */
} twin_attention_t;

/** P = softmax(q k / sqrt(D)) over j <= i, out = (P factor) v: out is [B,T,C],
 *  lse, the logarithm of the sum of exponentials, [B,H,T]. */
void twin_attention_forward(const twin_attention_t *a, double *out,
                            double *lse);

/** The gradient dqkv [B,T,3C] of sum(dout out) with respect to qkv. */
void twin_attention_backward(const twin_attention_t *a, const double *dout,
                             double *dqkv);

/** What of the arithmetic of an implementation its rounding errors depend on.
 *  The exponential and the logarithm are within 2 ULP of correctly rounded. */
typedef struct twin_arithmetic {
    double unit; /**< the unit roundoff, 2^-24 for float32 */
    double tiny; /**< the smallest subnormal number */
    size_t tile; /**< keys after which an online softmax scales its sums */
    size_t more; /**< additions to a term of dK and dV that other heads cause */
} twin_arithmetic_t;

/** How far out and lse, computed in that arithmetic, can be from the exact
 *  ones.  attention_bound.c derives it. */
void twin_attention_forward_bound(const twin_attention_t *a,
                                  const twin_arithmetic_t *arithmetic,
                                  double *out_bound, double *lse_bound);

/** How far dqkv can be from exact when P is computed again from an lse, and the
 *  sum of P dP from an out, that are off by up to lse_error and out_error. */
void twin_attention_backward_bound(const twin_attention_t *a,
                                   const twin_arithmetic_t *arithmetic,
                                   const double *dout, const double *out_error,
                                   const double *lse_error, double *dqkv_bound);

/** One head of one sample.  Rows of q, k, v and of their gradients are 3 C
 *  apart, those of out C. */
typedef struct twin_head {
    size_t positions, depth, row, out_row;
    size_t qkv_at, out_at, lse_at; /**< where it begins in each array */
    const double *q, *k, *v, *factor;
    double scale;
} twin_head_t;

twin_head_t twin_attention_head(const twin_attention_t *a, size_t sample,
                                size_t head);

/** Row i of the scores and of P; the entries j > i are not touched.  Returns
 *  the row's lse. */
double twin_attention_row(const twin_head_t *head, size_t i, double *scores,
                          double *probabilities);

/** sum over d of x[d] y[d], and of |x[d] y[d]| */
double twin_dot(const double *x, const double *y, size_t depth);
double twin_dot_abs(const double *x, const double *y, size_t depth);

#endif
