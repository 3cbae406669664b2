#include "nn/half_bounds.h"

#include <string.h>

#include "fsdp/random.h"
#include "twin/gelu.h"
#include "twin/half.h"
#include "twin/numbers.h"

/* As nn_operators.c and nn_case_run() have them. */
enum { DROPOUT_LAYER = 12345, HEADS = 3, SEED = 7 };

static fsdp_dtype_t stored;

void
half_bounds_begin(fsdp_dtype_t dtype)
{
    stored = dtype;
    twin_begin(dtype);
    operator_bounds_begin(dtype);
}

/* 4/3 or 0: element e of sample b under a dropout of 1/4. */
static double
factor_of(size_t b, size_t e)
{
    uint32_t word =
        fsdp_random_word(SEED, FSDP_RANDOM_DROPOUT, DROPOUT_LAYER, b, e);
    return fsdp_random_uniform(word) >= 0.25 ? 4.0 / 3 : 0;
}

static void
dropout(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t per_sample = c->out_numel / c->array[0].shape[0];
    for (size_t i = 0; i < c->out_numel; i++) {
        double factor = factor_of(i / per_sample, i % per_sample);
        bounded_t f = b_round(factor, 0, 1);
        out[i] = b_mul(b_exact(c->array[0].value[i]), f);
        grad[0][i] = b_mul(b_exact(c->upstream[i]), f);
    }
}

static void
attention_dropout(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t batch = c->array[0].shape[0], t = c->array[0].shape[1];
    size_t per_sample = HEADS * t * t;
    double *factor = twin_alloc(batch * per_sample, sizeof *factor);
    for (size_t i = 0; i < batch * per_sample; i++)
        factor[i] = factor_of(i / per_sample, i % per_sample);
    operator_bounds_attention(c, factor, out, grad);
    fsdp_free(factor);
}

/* Row t of the table for position t of each sample. */
static void
position_embedding(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    size_t samples = c->integers_shape[0], positions = c->integers_shape[1];
    size_t channels = c->array[0].shape[1], sample = positions * channels;
    bounded_t terms[16];
    for (size_t i = 0; i < c->out_numel; i++)
        out[i] = b_exact(c->array[0].value[i % sample]);
    for (size_t i = 0; i < nn_array_numel(&c->array[0]); i++) {
        for (size_t b = 0; b < samples && i < sample; b++)
            terms[b] = b_exact(c->upstream[b * sample + i]);
        grad[0][i] = b_sum(terms, i < sample ? samples : 0);
    }
}

/* Two operators; each hands its result to a tensor. */
static void
added_to_itself(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    for (size_t i = 0; i < c->out_numel; i++) {
        bounded_t x = b_exact(c->array[0].value[i]);
        bounded_t dy = b_exact(c->upstream[i]);
        out[i] = b_add(x, b_store(stored, b_add(x, x)));
        grad[0][i] = b_add(b_store(stored, b_add(dy, dy)), dy);
    }
}

static void
scale(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    for (size_t i = 0; i < c->out_numel; i++) {
        out[i] = b_mul(b_exact(c->array[0].value[i]), b_exact(-1.75));
        grad[0][i] = b_mul(b_exact(c->upstream[i]), b_exact(-1.75));
    }
}

/* With a GELU behind. */
static void
reshape(const nn_case_t *c, bounded_t *out, bounded_t *const *grad)
{
    for (size_t i = 0; i < c->out_numel; i++) {
        out[i] = twin_gelu_tanh(c->array[0].value[i]);
        grad[0][i] =
            twin_gelu_tanh_backward(c->array[0].value[i], c->upstream[i]);
    }
}

operator_bounds_t
half_bounds(const char *name)
{
    static const struct {
        const char *name;
        operator_bounds_t bounds;
    } more[] = {
        {"dropout", dropout},
        {"attention_dropout", attention_dropout},
        {"position_embedding", position_embedding},
        {"added_to_itself", added_to_itself},
        {"scale", scale},
        {"reshape", reshape},
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (strcmp(more[i].name, name) == 0)
            return more[i].bounds;
    return operator_bounds(name);
}
