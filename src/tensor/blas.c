#include "tensor/blas.h"

#include <blis.h>
#include <pthread.h>

/* BLIS 1.1 and 0.9 share the macro; bli_rntm_init() has two meanings. */
static rntm_t runtime = BLIS_RNTM_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
make_runtime(void)
{
    bli_rntm_set_num_threads(1, &runtime);
    bli_rntm_disable_l3_sup(&runtime);
}

static trans_t
transposed(bool trans)
{
    return trans ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE;
}

/* BLIS takes pointers without const, and its own copy of the runtime. */
void
fsdp_blas_sgemm(bool trans_a, bool trans_b, size_t m, size_t n, size_t k,
                float alpha, const float *a, size_t lda, const float *b,
                size_t ldb, float beta, float *c, size_t ldc)
{
    pthread_once(&once, make_runtime);
    rntm_t mine = runtime;
    bli_sgemm_ex(transposed(trans_a), transposed(trans_b), (dim_t)m, (dim_t)n,
                 (dim_t)k, &alpha, (float *)a, (inc_t)lda, 1, (float *)b,
                 (inc_t)ldb, 1, &beta, c, (inc_t)ldc, 1, NULL, &mine);
}

void
fsdp_blas_dgemm(bool trans_a, bool trans_b, size_t m, size_t n, size_t k,
                double alpha, const double *a, size_t lda, const double *b,
                size_t ldb, double beta, double *c, size_t ldc)
{
    pthread_once(&once, make_runtime);
    rntm_t mine = runtime;
    bli_dgemm_ex(transposed(trans_a), transposed(trans_b), (dim_t)m, (dim_t)n,
                 (dim_t)k, &alpha, (double *)a, (inc_t)lda, 1, (double *)b,
                 (inc_t)ldb, 1, &beta, c, (inc_t)ldc, 1, NULL, &mine);
}
