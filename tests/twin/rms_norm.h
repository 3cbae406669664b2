/** \file rms_norm.h  Twins of RMSNorm, forward and backward. */
#ifndef TWIN_RMS_NORM_H
#define TWIN_RMS_NORM_H

#include "twin/numbers.h"

/** What the twin makes of x [N,C], weight [C] and the gradient dy [N,C]. */
typedef struct twin_rms_norm {
    size_t rows, channels;
    double eps;
    numbers_t x, weight, dy;
    bounded_t *y, *dx;  /**< [N,C] */
    bounded_t *rstd;    /**< [N]   */
    bounded_t *dweight; /**< [C]   */
} twin_rms_norm_t;

static inline bounded_t
twin_rms_xhat(const twin_rms_norm_t *t, size_t at, bounded_t rstd)
{
    return b_mul(b_exact(numbers_get(t->x, at)), rstd);
}

/** y = x rstd weight, rstd = 1 / sqrt(mean(x^2) + eps) */
static inline void
twin_rms_norm_forward(twin_rms_norm_t *t)
{
    size_t c = t->channels;
    bounded_t *terms = twin_alloc(c, sizeof *terms);
    for (size_t r = 0; r < t->rows; r++) {
        for (size_t i = 0; i < c; i++) {
            bounded_t x = b_exact(numbers_get(t->x, r * c + i));
            terms[i] = b_mul(x, x);
        }
        bounded_t mean = b_div(b_sum(terms, c), b_exact((double)c));
        bounded_t eps = b_round(t->eps, 0, 1);
        t->rstd[r] = b_div(b_exact(1), b_sqrt(b_add(mean, eps)));
        for (size_t i = 0; i < c; i++)
            t->y[r * c + i] = b_mul(twin_rms_xhat(t, r * c + i, t->rstd[r]),
                                    b_exact(numbers_get(t->weight, i)));
    }
    fsdp_free(terms);
}

/** dx = rstd (g - xhat mean(g xhat)), g = dy weight, xhat = x rstd */
static inline void
twin_rms_norm_dx(twin_rms_norm_t *t, size_t r, bounded_t rstd)
{
    size_t c = t->channels;
    bounded_t *g = twin_alloc(c, sizeof *g), *gx = twin_alloc(c, sizeof *gx);
    for (size_t i = 0; i < c; i++) {
        g[i] = b_mul(b_exact(numbers_get(t->dy, r * c + i)),
                     b_exact(numbers_get(t->weight, i)));
        gx[i] = b_mul(g[i], twin_rms_xhat(t, r * c + i, rstd));
    }
    bounded_t mean = b_div(b_sum(gx, c), b_exact((double)c));
    for (size_t i = 0; i < c; i++) {
        bounded_t xhat = twin_rms_xhat(t, r * c + i, rstd);
        t->dx[r * c + i] = b_mul(rstd, b_sub(g[i], b_mul(xhat, mean)));
    }
    fsdp_free(g);
    fsdp_free(gx);
}

/** From the rstd [N] given; dweight = sum over rows of dy xhat: gamma_(N-1). */
static inline void
twin_rms_norm_backward(twin_rms_norm_t *t, const bounded_t *rstd)
{
    bounded_t *terms = twin_alloc(t->rows, sizeof *terms);
    for (size_t r = 0; r < t->rows; r++)
        twin_rms_norm_dx(t, r, rstd[r]);
    for (size_t i = 0; i < t->channels; i++) {
        for (size_t r = 0; r < t->rows; r++) {
            size_t at = r * t->channels + i;
            terms[r] = b_mul(b_exact(numbers_get(t->dy, at)),
                             twin_rms_xhat(t, at, rstd[r]));
        }
        t->dweight[i] = b_sum(terms, t->rows);
    }
    fsdp_free(terms);
}

#endif
