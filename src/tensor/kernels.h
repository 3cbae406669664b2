/** \file kernels.h  Floor 1, tensor: what is computed, for float32 and float64.
 *
 *  The files of src/tensor/kernels/ are compiled once for each of the two types;
 *  fsdp_kernels() gives the table for one.  `void *` arguments point to elements
 *  of the table's type.  No kernel allocates from the system in the steady
 *  state, and no result depends on the number of threads: work is cut by
 *  shape (C3), and a sum runs in an order fixed by the shape alone.
 *  A row's results do not depend on the rows beside it, unless it says so.
 *
 *  Letters: B samples, T positions, C channels, H heads, G key heads, D = C / H,
 *  V vocabulary, N rows (B T), I inputs, O outputs.  Row-major throughout.
 */
#ifndef FSDP_TENSOR_KERNELS_H
#define FSDP_TENSOR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsdp/dtype.h"

/** Which random numbers a dropout uses: element e of sample b (counted from
 *  `first_sample` over the whole run's batch) takes word e of the stream
 *  (seed, FSDP_RANDOM_DROPOUT, layer, step << 32 | first_sample + b).
 *  An element is kept when fsdp_random_uniform(word) >= p, then scaled by
 *  1 / (1 - p) (rounded to the type once). */
typedef struct fsdp_dropout_key {
    double p; /**< 0: no dropout, no random numbers drawn */
    uint64_t seed;
    uint32_t step;
    uint32_t first_sample;
    uint32_t layer;
    uint32_t first_head; /**< attention: heads of the layer that other ranks
                              have before the first one here */
} fsdp_dropout_key_t;

typedef struct fsdp_attention_shape {
    size_t batch, positions, channels, heads; /**< B, T, C, H; H divides C */
    size_t kv_heads; /**< G, a divisor of H; 0: as many as H */
} fsdp_attention_shape_t;

typedef struct fsdp_kernels {
    fsdp_dtype_t dtype;

    /** C[m,n] = alpha op(A) op(B) + beta C; op transposes when trans_ is true.
     *  ld_ are row strides of the stored (untransposed) matrices.  beta = 0
     *  does not read C.  Cut into fixed tiles by shape, each a single-threaded
     *  BLIS call with the small-matrix path off; no rows' bits depend on other
     *  rows of op(A), nor columns' on other columns of op(B). */
    void (*gemm)(bool trans_a, bool trans_b, size_t m, size_t n, size_t k,
                 double alpha, const void *a, size_t lda, const void *b,
                 size_t ldb, double beta, void *c, size_t ldc);

    /* -- elementwise, n elements; out may be in -- */
    void (*fill)(void *y, double value, size_t n);
    void (*add)(const void *a, const void *b, void *y, size_t n);
    void (*accumulate)(void *y, const void *x, size_t n); /**< y = y + x */
    void (*scale)(const void *x, double alpha, void *y, size_t n);
    void (*divide)(const void *x, double divisor, void *y, size_t n);
    void (*gelu_tanh)(const void *x, void *y, size_t n);
    void (*gelu_tanh_backward)(const void *x, const void *dy, void *dx,
                               size_t n);
    void (*gelu_erf)(const void *x, void *y, size_t n);
    void (*gelu_erf_backward)(const void *x, const void *dy, void *dx,
                              size_t n);
    void (*multiply)(const void *a, const void *b, void *y, size_t n);
    void (*silu)(const void *x, void *y, size_t n); /**< x / (1 + exp(-x)) */
    void (*silu_backward)(const void *x, const void *dy, void *dx, size_t n);
    void (*relu)(const void *x, void *y, size_t n);
    /** dx = y > 0 ? dy : 0, where y is the output (or the input) */
    void (*relu_backward)(const void *y, const void *dy, void *dx, size_t n);
    /** forward and backward are the same: y = x * mask / (1 - p) */
    void (*dropout)(const fsdp_dropout_key_t *key, const void *x, void *y,
                    size_t samples, size_t per_sample);

    /* -- rows and columns -- */
    /** y[N,O] = x[N,O] + bias[O] */
    void (*add_bias)(const void *x, const void *bias, void *y, size_t rows,
                     size_t columns);
    /** out[O] = sum over rows of x[N,O]; the order is fixed by N alone */
    void (*sum_rows)(const void *x, void *out, size_t rows, size_t columns);

    /** y[N,C] = table[index[i], :]; every index is in [0, table_rows), checked */
    void (*embedding)(const int32_t *index, const void *table, void *y,
                      size_t rows, size_t table_rows, size_t channels);
    /** dtable[V,C] += rows of dy, in ascending i for each table row.  Adds to
     *  what stands there: the caller zeroes. */
    void (*embedding_backward)(const int32_t *index, const void *dy,
                               void *dtable, size_t rows, size_t table_rows,
                               size_t channels);

    /** mean and rstd [N] are kept for the backward */
    void (*layer_norm)(const void *x, const void *weight, const void *bias,
                       void *y, void *mean, void *rstd, size_t rows,
                       size_t channels, double eps);
    /** dweight and dbias [C] are written (not added to), sums over rows in an
     *  order fixed by N; either may be NULL */
    void (*layer_norm_backward)(const void *x, const void *weight,
                                const void *mean, const void *rstd,
                                const void *dy, void *dx, void *dweight,
                                void *dbias, size_t rows, size_t channels);

    /** y = x rstd weight, rstd = 1 / sqrt(mean(x^2) + eps), which [N] is kept
     *  for the backward */
    void (*rms_norm)(const void *x, const void *weight, void *y, void *rstd,
                     size_t rows, size_t channels, double eps);
    /** dweight [C] is written, a sum over rows in an order fixed by N; it may be
     *  NULL */
    void (*rms_norm_backward)(const void *x, const void *weight,
                              const void *rstd, const void *dy, void *dx,
                              void *dweight, size_t rows, size_t channels);

    /** Causal self-attention of packed qkv[B,T,3C] (q, k, v one after another,
     *  head h in columns h D .. h D + D - 1 of each), scale 1/sqrt(D):
     *  out[B,T,C], lse[B,H,T] (log of the sum of exponentials, for the
     *  backward).  In tiles: no T x T matrix is kept.  Dropout acts on the
     *  probabilities; its element is (h T + i) T + j, h from `first_head`. */
    void (*attention)(fsdp_attention_shape_t shape, const void *qkv, void *out,
                      void *lse, const fsdp_dropout_key_t *dropout);
    void (*attention_backward)(fsdp_attention_shape_t shape, const void *qkv,
                               const void *out, const void *lse,
                               const void *dout, void *dqkv,
                               const fsdp_dropout_key_t *dropout);
    /** The same of q[B,T,C] and k, v[B,T,G D], where H / G query heads after
     *  one another read one key head. */
    void (*grouped_attention)(fsdp_attention_shape_t shape, const void *q,
                              const void *k, const void *v, void *out,
                              void *lse, const fsdp_dropout_key_t *dropout);
    void (*grouped_attention_backward)(fsdp_attention_shape_t shape,
                                       const void *q, const void *k,
                                       const void *v, const void *out,
                                       const void *lse, const void *dout,
                                       void *dq, void *dk, void *dv,
                                       const fsdp_dropout_key_t *dropout);

    /** x[N,C] of H heads, row r at position r % T: of each head, column i of
     *  its first half and of its second are turned by the angle of (position,
     *  i), backwards if `inverse`.  table[P,D], P >= T: the cosines of the D/2
     *  angles of a position, then their sines.  D is even; y may be x. */
    void (*rotary)(const void *x, const void *table, void *y, size_t rows,
                   size_t positions, size_t heads, size_t depth, bool inverse);

    /** loss[i] = lse(logits_i) - logits_i[target_i], 0 where target_i is
     *  `ignore_index`; dlogits = (softmax - onehot) * scale, 0 rows where
     *  ignored; dlogits may be NULL or be logits.  Targets are checked. */
    void (*cross_entropy)(const void *logits, const int32_t *target,
                          int32_t ignore_index, void *loss, void *dlogits,
                          double scale, size_t rows, size_t classes);

    /** The same in steps, of logits[N,V] that are some of a row's classes, the
     *  others being elsewhere.  The maximum of each row: */
    void (*partial_max)(const void *logits, void *max, size_t rows,
                        size_t classes);
    /** with the maximum over all classes: logits become e = exp(logit - max),
     *  sum[i] the sum of a row's, hit[i] the logit of its target if that is
     *  one of the classes [first, first + V), else 0; */
    void (*partial_exponentials)(void *logits, const void *max,
                                 const int32_t *target, size_t first, void *sum,
                                 void *hit, size_t rows, size_t classes);
    /** with sum and hit over all classes: loss[i] = (max - hit) + log(sum); */
    void (*partial_losses)(const void *max, const void *sum, const void *hit,
                           const int32_t *target, int32_t ignore_index,
                           void *loss, size_t rows);
    /** e becomes dlogits, (e / sum - onehot) * scale. */
    void (*partial_dlogits)(void *exponentials, const void *sum,
                            const int32_t *target, int32_t ignore_index,
                            size_t first, double scale, size_t rows,
                            size_t classes);

    /** dx = scale * (x - y) and the sum of (x - y)^2, in an order fixed by n;
     *  dx may be NULL */
    double (*squared_error)(const void *x, const void *y, double scale,
                            void *dx, size_t n);
    /** the sum of n elements in an order fixed by n (blocks of 128, then a
     *  balanced tree), rounded to the type at each step */
    double (*sum)(const void *x, size_t n);

    /* -- optimizers, elementwise on n elements; scalars as PyTorch makes them:
     *    in double, rounded to the type where they meet an element -- */
    /** PyTorch: torch/optim/sgd.py, _single_tensor_sgd().  `first` is the step
     *  that makes the momentum buffer.  momentum 0: buffer unused, NULL. */
    void (*sgd)(void *param, const void *grad, void *buffer, size_t n,
                double lr, double momentum, double dampening,
                double weight_decay, bool nesterov, bool first);
    /** PyTorch: torch/optim/adam.py, _single_tensor_adam() with decoupled
     *  weight decay (AdamW), not capturable, no amsgrad.  `step` from 1. */
    void (*adamw)(void *param, const void *grad, void *exp_avg,
                  void *exp_avg_sq, size_t n, double lr, double beta1,
                  double beta2, double eps, double weight_decay, long step);
} fsdp_kernels_t;

/** The table for FSDP_FP32 or FSDP_FP64; ends the program for other types. */
const fsdp_kernels_t *fsdp_kernels(fsdp_dtype_t dtype);

#endif
