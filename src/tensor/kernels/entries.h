/** \file entries.h  Floor 1, tensor: the kernels of one element type.
 *
 *  Each is described in tensor/kernels.h, at the table's entry of its name.
 */
#ifndef FSDP_TENSOR_KERNELS_ENTRIES_H
#define FSDP_TENSOR_KERNELS_ENTRIES_H

#include "tensor/kernels.h"
#include "tensor/kernels/real.h"

void K(gemm)(bool trans_a, bool trans_b, size_t m, size_t n, size_t k,
             double alpha, const void *a, size_t lda, const void *b, size_t ldb,
             double beta, void *c, size_t ldc);

void K(fill)(void *y, double value, size_t n);
void K(add)(const void *a, const void *b, void *y, size_t n);
void K(accumulate)(void *y, const void *x, size_t n);
void K(scale)(const void *x, double alpha, void *y, size_t n);
void K(divide)(const void *x, double divisor, void *y, size_t n);
void K(gelu_tanh)(const void *x, void *y, size_t n);
void K(gelu_tanh_backward)(const void *x, const void *dy, void *dx, size_t n);
void K(gelu_erf)(const void *x, void *y, size_t n);
void K(gelu_erf_backward)(const void *x, const void *dy, void *dx, size_t n);
void K(multiply)(const void *a, const void *b, void *y, size_t n);
void K(silu)(const void *x, void *y, size_t n);
void K(silu_backward)(const void *x, const void *dy, void *dx, size_t n);
void K(relu)(const void *x, void *y, size_t n);
void K(relu_backward)(const void *y, const void *dy, void *dx, size_t n);
void K(dropout)(const fsdp_dropout_key_t *key, const void *x, void *y,
                size_t samples, size_t per_sample);

void K(add_bias)(const void *x, const void *bias, void *y, size_t rows,
                 size_t columns);
void K(sum_rows)(const void *x, void *out, size_t rows, size_t columns);
void K(embedding)(const int32_t *index, const void *table, void *y, size_t rows,
                  size_t table_rows, size_t channels);
void K(embedding_backward)(const int32_t *index, const void *dy, void *dtable,
                           size_t rows, size_t table_rows, size_t channels);
void K(layer_norm)(const void *x, const void *weight, const void *bias, void *y,
                   void *mean, void *rstd, size_t rows, size_t channels,
                   double eps);
void K(layer_norm_backward)(const void *x, const void *weight, const void *mean,
                            const void *rstd, const void *dy, void *dx,
                            void *dweight, void *dbias, size_t rows,
                            size_t channels);
void K(rms_norm)(const void *x, const void *weight, void *y, void *rstd,
                 size_t rows, size_t channels, double eps);
void K(rms_norm_backward)(const void *x, const void *weight, const void *rstd,
                          const void *dy, void *dx, void *dweight, size_t rows,
                          size_t channels);
void K(attention)(fsdp_attention_shape_t shape, const void *qkv, void *out,
                  void *lse, const fsdp_dropout_key_t *dropout);
void K(attention_backward)(fsdp_attention_shape_t shape, const void *qkv,
                           const void *out, const void *lse, const void *dout,
                           void *dqkv, const fsdp_dropout_key_t *dropout);
void K(grouped_attention)(fsdp_attention_shape_t shape, const void *q,
                          const void *k, const void *v, void *out, void *lse,
                          const fsdp_dropout_key_t *dropout);
void K(grouped_attention_backward)(fsdp_attention_shape_t shape, const void *q,
                                   const void *k, const void *v,
                                   const void *out, const void *lse,
                                   const void *dout, void *dq, void *dk,
                                   void *dv, const fsdp_dropout_key_t *dropout);
void K(rotary)(const void *x, const void *table, void *y, size_t rows,
               size_t positions, size_t heads, size_t depth, bool inverse);
void K(cross_entropy)(const void *logits, const int32_t *target,
                      int32_t ignore_index, void *loss, void *dlogits,
                      double scale, size_t rows, size_t classes);
void K(partial_max)(const void *logits, void *max, size_t rows, size_t classes);
void K(partial_exponentials)(void *logits, const void *max,
                             const int32_t *target, size_t first, void *sum,
                             void *hit, size_t rows, size_t classes);
void K(partial_losses)(const void *max, const void *sum, const void *hit,
                       const int32_t *target, int32_t ignore_index, void *loss,
                       size_t rows);
void K(partial_dlogits)(void *exponentials, const void *sum,
                        const int32_t *target, int32_t ignore_index,
                        size_t first, double scale, size_t rows,
                        size_t classes);
double K(squared_error)(const void *x, const void *y, double scale, void *dx,
                        size_t n);
double K(sum)(const void *x, size_t n);

void K(sgd)(void *param, const void *grad, void *buffer, size_t n, double lr,
            double momentum, double dampening, double weight_decay,
            bool nesterov, bool first);
void K(adamw)(void *param, const void *grad, void *exp_avg, void *exp_avg_sq,
              size_t n, double lr, double beta1, double beta2, double eps,
              double weight_decay, long step);

extern const fsdp_kernels_t K(kernels);

#endif
