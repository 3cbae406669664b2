/* What the kernels beside the matrix products cost, on one thread.
 *
 *     ./bench_kernels [ROUNDS]
 *
 * ns per element, and GB/s of the bytes that a kernel must read and write, as
 * the median over the rounds; 256 tokens of GPT-2 124M (AdamW: one layer's
 * 768 x 3072 weight). */
#include <stdio.h>
#include <stdlib.h>

#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "measure.h"
#include "tensor/kernels.h"

enum { ROWS = 256, CHANNELS = 768, CLASSES = 50257, NUMEL = 768 * 3072 };

typedef struct buffers {
    const fsdp_kernels_t *k;
    void *a, *b, *c, *d, *weight, *mean, *rstd;
    int32_t *index;
} buffers_t;

static void
run_add(const buffers_t *s)
{
    s->k->add(s->a, s->b, s->c, NUMEL);
}

static void
run_gelu(const buffers_t *s)
{
    s->k->gelu_tanh(s->a, s->b, NUMEL);
}

static void
run_gelu_backward(const buffers_t *s)
{
    s->k->gelu_tanh_backward(s->a, s->b, s->c, NUMEL);
}

static void
run_gelu_erf(const buffers_t *s)
{
    s->k->gelu_erf(s->a, s->b, NUMEL);
}

static void
run_gelu_erf_backward(const buffers_t *s)
{
    s->k->gelu_erf_backward(s->a, s->b, s->c, NUMEL);
}

static void
run_layer_norm(const buffers_t *s)
{
    s->k->layer_norm(s->a, s->weight, s->weight, s->b, s->mean, s->rstd, ROWS,
                     CHANNELS, 1e-5);
}

static void
run_layer_norm_backward(const buffers_t *s)
{
    s->k->layer_norm_backward(s->a, s->weight, s->mean, s->rstd, s->b, s->c,
                              s->d, s->d, ROWS, CHANNELS);
}

static void
run_cross_entropy(const buffers_t *s)
{
    s->k->cross_entropy(s->a, s->index, -1, s->mean, s->b, 1.0 / 64, 64,
                        CLASSES);
}

static void
run_dropout(const buffers_t *s)
{
    fsdp_dropout_key_t key = {.p = 0.1, .seed = 1, .step = 2, .layer = 3};
    s->k->dropout(&key, s->a, s->b, 1, NUMEL);
}

static void
run_sum_rows(const buffers_t *s)
{
    s->k->sum_rows(s->a, s->b, NUMEL / CHANNELS, CHANNELS);
}

static void
run_embedding_backward(const buffers_t *s)
{
    s->k->embedding_backward(s->index, s->a, s->b, ROWS, ROWS, CHANNELS);
}

static void
run_adamw(const buffers_t *s)
{
    s->k->adamw(s->a, s->b, s->c, s->d, NUMEL, 1e-4, 0.9, 0.999, 1e-8, 0.01, 1);
}

static void
run_sum(const buffers_t *s)
{
    s->k->sum(s->a, NUMEL);
}

static void
run_to_bf16(const buffers_t *s)
{
    fsdp_convert(s->k->dtype, s->a, FSDP_BF16, s->b, NUMEL);
}

static void
run_from_bf16(const buffers_t *s)
{
    fsdp_convert(FSDP_BF16, s->a, s->k->dtype, s->b, NUMEL);
}

static void
run_to_fp16(const buffers_t *s)
{
    fsdp_convert(s->k->dtype, s->a, FSDP_FP16, s->b, NUMEL);
}

static void
run_from_fp16(const buffers_t *s)
{
    fsdp_convert(FSDP_FP16, s->a, s->k->dtype, s->b, NUMEL);
}

/* elements, and how many elements each reads and writes */
static const struct {
    const char *name;
    void (*run)(const buffers_t *);
    double numel;
    int traffic;
} benches[] = {
    {"add", run_add, NUMEL, 3},
    {"sum", run_sum, NUMEL, 1},
    {"sum_rows", run_sum_rows, NUMEL, 1},
    {"gelu_tanh", run_gelu, NUMEL, 2},
    {"gelu_tanh_backward", run_gelu_backward, NUMEL, 3},
    {"gelu_erf", run_gelu_erf, NUMEL, 2},
    {"gelu_erf_backward", run_gelu_erf_backward, NUMEL, 3},
    {"layer_norm", run_layer_norm, ROWS *CHANNELS, 2},
    {"layer_norm_backward", run_layer_norm_backward, ROWS *CHANNELS, 5},
    {"cross_entropy", run_cross_entropy, 64 * CLASSES, 2},
    {"dropout", run_dropout, NUMEL, 2},
    {"embedding_backward", run_embedding_backward, ROWS *CHANNELS, 3},
    {"adamw", run_adamw, NUMEL, 7},
    {"to bfloat16", run_to_bf16, NUMEL, 1}, /* of the wide type alone */
    {"from bfloat16", run_from_bf16, NUMEL, 1},
    {"to float16", run_to_fp16, NUMEL, 1},
    {"from float16", run_from_fp16, NUMEL, 1},
};

static double
median_seconds(void (*run)(const buffers_t *), const buffers_t *s, int rounds)
{
    double *seconds = malloc((size_t)rounds * sizeof *seconds);
    run(s);
    for (int i = 0; i < rounds; i++) {
        double start = thread_seconds();
        run(s);
        seconds[i] = thread_seconds() - start;
    }
    double middle = median(seconds, rounds);
    free(seconds);
    return middle;
}

static void *
random_elements(const fsdp_kernels_t *k, size_t n, double scale)
{
    void *x = fsdp_alloc(FSDP_MEM_OTHER, n * fsdp_dtype_size(k->dtype));
    fsdp_tensor_t *view = fsdp_tensor_borrow(k->dtype, 1, &n, x);
    for (size_t i = 0; i < n; i++)
        fsdp_tensor_set(view, i,
                        scale * ((double)(i * 2654435761u % 4001) / 2000 - 1));
    fsdp_tensor_destroy(&view);
    return x;
}

static void
run_all(fsdp_dtype_t dtype, int rounds)
{
    const fsdp_kernels_t *k = fsdp_kernels(dtype);
    size_t n = 64 * CLASSES, bytes = fsdp_dtype_size(dtype);
    buffers_t s = {
        k,
        random_elements(k, n, 3),
        random_elements(k, n, 1),
        random_elements(k, n, 0),
        random_elements(k, n, 0),
        random_elements(k, CHANNELS, 1),
        random_elements(k, ROWS, 1),
        random_elements(k, ROWS, 1),
        fsdp_calloc(FSDP_MEM_OTHER, ROWS * sizeof *s.index),
    };
    for (int i = 0; i < ROWS; i++)
        s.index[i] = i * 7 % ROWS;
    printf("%-22s%12s%10s\n", fsdp_dtype_name(dtype), "ns/element", "GB/s");
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        double t = median_seconds(benches[i].run, &s, rounds);
        printf(
            "%-22s%12.3f%10.1f\n", benches[i].name, 1e9 * t / benches[i].numel,
            1e-9 * benches[i].numel * benches[i].traffic * (double)bytes / t);
    }
    void *blocks[] = {s.a, s.b, s.c, s.d, s.weight, s.mean, s.rstd, s.index};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        fsdp_free(blocks[i]);
}

int
main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 11;
    if (rounds < 1)
        return EXIT_FAILURE;
    fsdp_set_num_threads(1);
    run_all(FSDP_FP32, rounds);
    run_all(FSDP_FP64, rounds);
    return EXIT_SUCCESS;
}
