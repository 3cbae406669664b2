/** \file layer_norm.h  Twins of layer norm, forward and backward. */
#ifndef TWIN_LAYER_NORM_H
#define TWIN_LAYER_NORM_H

#include "twin/numbers.h"

/** What the twin makes of x [N,C], weight and bias [C] and the gradient dy
 *  [N,C]. */
typedef struct twin_layer_norm {
    size_t rows, channels;
    double eps;
    numbers_t x, weight, bias, dy;
    bounded_t *y, *dx;          /**< [N,C] */
    bounded_t *mean, *rstd;     /**< [N]   */
    bounded_t *dweight, *dbias; /**< [C]   */
} twin_layer_norm_t;

/** Mean and variance are sums of C terms (gamma_(C-1)) divided by C; the
 *  variance's terms are rounded twice and carry the mean's error. */
static inline void
twin_layer_norm_row(twin_layer_norm_t *t, size_t r, bounded_t *terms)
{
    size_t c = t->channels;
    bounded_t n = b_exact((double)c);
    for (size_t i = 0; i < c; i++)
        terms[i] = b_exact(numbers_get(t->x, r * c + i));
    t->mean[r] = b_div(b_sum(terms, c), n);
    for (size_t i = 0; i < c; i++) {
        bounded_t d = b_sub(b_exact(numbers_get(t->x, r * c + i)), t->mean[r]);
        terms[i] = b_mul(d, d);
    }
    bounded_t variance = b_div(b_sum(terms, c), n);
    bounded_t eps = b_round(t->eps, 0, 1);
    t->rstd[r] = b_div(b_exact(1), b_sqrt(b_add(variance, eps)));
}

/** (x - mean) rstd, from the mean and rstd given (the forward's own results in
 *  the backward, which takes them as exact). */
static inline bounded_t
twin_xhat(const twin_layer_norm_t *t, size_t at, bounded_t mean, bounded_t rstd)
{
    return b_mul(b_sub(b_exact(numbers_get(t->x, at)), mean), rstd);
}

/** y = xhat weight + bias */
static inline void
twin_layer_norm_forward(twin_layer_norm_t *t)
{
    bounded_t *terms = twin_alloc(t->channels, sizeof *terms);
    for (size_t r = 0; r < t->rows; r++) {
        twin_layer_norm_row(t, r, terms);
        for (size_t i = 0; i < t->channels; i++) {
            size_t at = r * t->channels + i;
            bounded_t xhat = twin_xhat(t, at, t->mean[r], t->rstd[r]);
            t->y[at] = b_add(b_mul(xhat, b_exact(numbers_get(t->weight, i))),
                             b_exact(numbers_get(t->bias, i)));
        }
    }
    fsdp_free(terms);
}

/** dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy weight; both means are
 *  sums of C terms (gamma_(C-1)) divided by C. */
static inline void
twin_layer_norm_dx(twin_layer_norm_t *t, size_t r, bounded_t mean,
                   bounded_t rstd)
{
    size_t c = t->channels;
    bounded_t *g = twin_alloc(c, sizeof *g), *gx = twin_alloc(c, sizeof *gx);
    for (size_t i = 0; i < c; i++) {
        g[i] = b_mul(b_exact(numbers_get(t->dy, r * c + i)),
                     b_exact(numbers_get(t->weight, i)));
        gx[i] = b_mul(g[i], twin_xhat(t, r * c + i, mean, rstd));
    }
    bounded_t mean_g = b_div(b_sum(g, c), b_exact((double)c));
    bounded_t mean_gx = b_div(b_sum(gx, c), b_exact((double)c));
    for (size_t i = 0; i < c; i++) {
        bounded_t xhat = twin_xhat(t, r * c + i, mean, rstd);
        bounded_t inner = b_sub(b_sub(g[i], mean_g), b_mul(xhat, mean_gx));
        t->dx[r * c + i] = b_mul(rstd, inner);
    }
    fsdp_free(g);
    fsdp_free(gx);
}

/** dweight = sum of dy xhat, dbias = sum of dy, over N rows: gamma_(N-1). */
static inline void
twin_layer_norm_backward(twin_layer_norm_t *t, numbers_t mean, numbers_t rstd)
{
    bounded_t *w = twin_alloc(t->rows, sizeof *w);
    bounded_t *b = twin_alloc(t->rows, sizeof *b);
    for (size_t r = 0; r < t->rows; r++)
        twin_layer_norm_dx(t, r, b_exact(numbers_get(mean, r)),
                           b_exact(numbers_get(rstd, r)));
    for (size_t i = 0; i < t->channels; i++) {
        for (size_t r = 0; r < t->rows; r++) {
            size_t at = r * t->channels + i;
            b[r] = b_exact(numbers_get(t->dy, at));
            w[r] = b_mul(b[r], twin_xhat(t, at, b_exact(numbers_get(mean, r)),
                                         b_exact(numbers_get(rstd, r))));
        }
        t->dweight[i] = b_sum(w, t->rows);
        t->dbias[i] = b_sum(b, t->rows);
    }
    fsdp_free(w);
    fsdp_free(b);
}

#endif
