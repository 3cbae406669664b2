/** \file attention_case.h  One call of attention, with data for it. */
#ifndef TESTS_TENSOR_ATTENTION_CASE_H
#define TESTS_TENSOR_ATTENTION_CASE_H

#include "fsdp/dtype.h"
#include "tensor/kernels.h"
#include "twin/attention.h"

/** The inputs are multiples of magnitude / 128, so both types hold them
 *  exactly. */
typedef struct case_ {
    fsdp_dtype_t dtype;
    size_t size; /**< bytes of an element */
    fsdp_attention_shape_t shape;
    fsdp_dropout_key_t key;
    size_t qkv_numel, out_numel, lse_numel;
    void *qkv, *out, *lse, *dout, *dqkv;     /**< of the type */
    double *qkv_exact, *dout_exact, *factor; /**< the same for the twin */
    twin_attention_t twin;
} case_t;

/** Elements are in [-magnitude, magnitude], powers of two. */
case_t case_create(fsdp_dtype_t dtype, size_t batch, size_t positions,
                   size_t heads, size_t depth, double magnitude, double p);
void case_destroy(case_t *c);

/** Makes every v `value`. */
void case_set_values(case_t *c, double value);

/** The kernels: qkv to out, lse; qkv, out, lse, dout to dqkv. */
void case_forward(case_t *c);
void case_backward(case_t *c);

double case_get(const case_t *c, const void *x, size_t i);
void case_put(const case_t *c, void *x, const double *values, size_t n);

/** n doubles, to be freed. */
double *case_doubles(size_t n);

#endif
