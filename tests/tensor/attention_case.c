#include "tensor/attention_case.h"

#include <stdlib.h>

#include "fsdp/random.h"
#include "fsdp/status.h"

double *
case_doubles(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    FSDP_CHECK(x != NULL, "no memory for %zu numbers", n);
    return x;
}

double
case_get(const case_t *c, const void *x, size_t i)
{
    return c->dtype == FSDP_FP32 ? (double)((const float *)x)[i]
                                 : ((const double *)x)[i];
}

void
case_put(const case_t *c, void *x, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c->dtype == FSDP_FP32)
            ((float *)x)[i] = (float)values[i];
        else
            ((double *)x)[i] = values[i];
}

/* Multiples of magnitude / 128 in [-magnitude, magnitude). */
static double *
numbers(uint32_t stream, size_t n, double magnitude)
{
    double *x = case_doubles(n);
    for (size_t i = 0; i < n; i++) {
        uint32_t word = fsdp_random_word(7, FSDP_RANDOM_TEST, stream, 0, i);
        x[i] = ((double)(word % 256) - 128) / 128 * magnitude;
    }
    return x;
}

/* The factors of dropout by the rule of tensor/kernels.h, a word at a time. */
static double *
factors(const case_t *c)
{
    size_t t = c->shape.positions, per_sample = c->shape.heads * t * t;
    double *factor = case_doubles(c->shape.batch * per_sample);
    for (size_t b = 0; b < c->shape.batch; b++) {
        uint64_t sample =
            (uint64_t)c->key.step << 32 | (c->key.first_sample + b);
        for (size_t e = 0; e < per_sample; e++) {
            uint32_t word = fsdp_random_word(c->key.seed, FSDP_RANDOM_DROPOUT,
                                             c->key.layer, sample, e);
            if (fsdp_random_uniform(word) >= c->key.p)
                factor[b * per_sample + e] = 1 / (1 - c->key.p);
        }
    }
    return factor;
}

case_t
case_create(fsdp_dtype_t dtype, size_t batch, size_t positions, size_t heads,
            size_t depth, double magnitude, double p)
{
    size_t channels = heads * depth, rows = batch * positions;
    case_t c = {
        .dtype = dtype,
        .size = fsdp_dtype_size(dtype),
        .shape = {batch, positions, channels, heads},
        .key = {.p = p, .seed = 11, .step = 3, .first_sample = 5, .layer = 2},
        .qkv_numel = rows * 3 * channels,
        .out_numel = rows * channels,
        .lse_numel = rows * heads,
    };
    c.qkv = malloc(c.qkv_numel * c.size);
    c.dqkv = malloc(c.qkv_numel * c.size);
    c.out = malloc(c.out_numel * c.size);
    c.dout = malloc(c.out_numel * c.size);
    c.lse = malloc(c.lse_numel * c.size);
    c.qkv_exact = numbers(1, c.qkv_numel, magnitude);
    c.dout_exact = numbers(2, c.out_numel, 1);
    c.factor = p > 0 ? factors(&c) : NULL;
    case_put(&c, c.qkv, c.qkv_exact, c.qkv_numel);
    case_put(&c, c.dout, c.dout_exact, c.out_numel);
    c.twin = (twin_attention_t){batch, positions,   channels,
                                heads, c.qkv_exact, c.factor};
    return c;
}

void
case_destroy(case_t *c)
{
    void *all[] = {c->qkv,  c->out,       c->lse,        c->dout,
                   c->dqkv, c->qkv_exact, c->dout_exact, c->factor};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

void
case_set_values(case_t *c, double value)
{
    for (size_t i = 0; i < c->qkv_numel; i++)
        if (i % (3 * c->shape.channels) >= 2 * c->shape.channels)
            c->qkv_exact[i] = value;
    case_put(c, c->qkv, c->qkv_exact, c->qkv_numel);
}

void
case_forward(case_t *c)
{
    fsdp_kernels(c->dtype)->attention(c->shape, c->qkv, c->out, c->lse,
                                      &c->key);
}

void
case_backward(case_t *c)
{
    fsdp_kernels(c->dtype)->attention_backward(c->shape, c->qkv, c->out, c->lse,
                                               c->dout, c->dqkv, &c->key);
}
