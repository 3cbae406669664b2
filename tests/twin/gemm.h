/** \file gemm.h  Twin of the matrix product. */
#ifndef TWIN_GEMM_H
#define TWIN_GEMM_H

#include "twin/numbers.h"

typedef struct twin_gemm {
    bool trans_a, trans_b;
    size_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
} twin_gemm_t;

/** c[i,j] = alpha sum_p a[i,p] b[p,j] + beta before[i,j], for i < m, j < n.
 *
 *  Each of the k products is rounded at most once and takes part in at most
 *  k - 1 additions, then in the product with alpha and the sum with beta c,
 *  which is rounded before (k may be cut in blocks, each scaled by alpha: no
 *  more roundings for any term).  So c = 1, k' = k + 2 in
 *  c gamma_k' (|alpha| sum|a b| + |beta c|). */
static inline void
twin_gemm(const twin_gemm_t *g, numbers_t a, numbers_t b, numbers_t before,
          bounded_t *c)
{
    for (size_t i = 0; i < g->m; i++) {
        for (size_t j = 0; j < g->n; j++) {
            double sum = 0, magnitude = 0;
            for (size_t p = 0; p < g->k; p++) {
                double x = numbers_get(a, g->trans_a ? p * g->lda + i
                                                     : i * g->lda + p);
                double y = numbers_get(b, g->trans_b ? j * g->ldb + p
                                                     : p * g->ldb + j);
                sum += x * y;
                magnitude += fabs(x * y);
            }
            size_t at = i * g->ldc + j;
            double old = g->beta == 0 ? 0 : g->beta * numbers_get(before, at);
            magnitude = fabs(g->alpha) * magnitude + fabs(old);
            c[at] = (bounded_t){g->alpha * sum + old,
                                twin_gamma((double)g->k + 2) * magnitude};
        }
    }
}

#endif
