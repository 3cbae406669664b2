/** \file blas.h  Floor 1, tensor: single-threaded matrix products by BLIS. */
#ifndef FSDP_TENSOR_BLAS_H
#define FSDP_TENSOR_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/** C[m,n] = alpha op(A)[m,k] op(B)[k,n] + beta C on the calling thread, with
 *  BLIS's path for small matrices off: the bits of a row of C do not depend on
 *  how many rows stand beside it.  Row-major; ld are the row strides of the
 *  stored matrices.  May be called by several threads at once. */
void fsdp_blas_sgemm(bool trans_a, bool trans_b, size_t m, size_t n, size_t k,
                     float alpha, const float *a, size_t lda, const float *b,
                     size_t ldb, float beta, float *c, size_t ldc);
void fsdp_blas_dgemm(bool trans_a, bool trans_b, size_t m, size_t n, size_t k,
                     double alpha, const double *a, size_t lda, const double *b,
                     size_t ldb, double beta, double *c, size_t ldc);

#endif
