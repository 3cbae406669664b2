/* Matrix products of GPT-2 124M at 256 tokens against plain BLIS.
 *
 *     OMP_NUM_THREADS=1 ./bench_gemm [ROUNDS]
 *
 * For each linear layer y[N,O] = x[N,I] W[O,I]^T, the three products of a
 * training step:
 *     forward   y  = x W^T
 *     dx        dx = dy W
 *     dW        dW = dy^T x
 * by the library's gemm on one thread and by one plain call of bli_sgemm, which
 * may use BLIS's path for small matrices and cuts nothing.  The two take turns,
 * so a noisy machine disturbs both; the ratio is of their medians.  The goal is
 * 0.9.  The head (50257 classes) is done by chunks of rows; below 192 rows dx
 * falls under the goal, since all of W is packed for few rows.  Exit status 1 if
 * a ratio is below the goal.
 */
#include <blis.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsdp/memory.h"
#include "fsdp/tensor.h"
#include "measure.h"
#include "tensor/kernels.h"

static const double goal = 0.9;

typedef struct layer {
    size_t tokens, inputs, outputs;
} layer_t;

typedef struct product {
    const char *name;
    bool trans_a, trans_b;
    size_t m, n, k;
    float *a, *b, *c;
} product_t;

static size_t
row_stride(bool trans, size_t rows, size_t columns)
{
    return trans ? rows : columns;
}

static void
ours(const product_t *p)
{
    fsdp_kernels(FSDP_FP32)->gemm(p->trans_a, p->trans_b, p->m, p->n, p->k, 1,
                                  p->a, row_stride(p->trans_a, p->m, p->k),
                                  p->b, row_stride(p->trans_b, p->k, p->n), 0,
                                  p->c, p->n);
}

static void
plain(const product_t *p)
{
    float one = 1, zero = 0;
    bli_sgemm(p->trans_a ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE,
              p->trans_b ? BLIS_TRANSPOSE : BLIS_NO_TRANSPOSE, (dim_t)p->m,
              (dim_t)p->n, (dim_t)p->k, &one, p->a,
              (inc_t)row_stride(p->trans_a, p->m, p->k), 1, p->b,
              (inc_t)row_stride(p->trans_b, p->k, p->n), 1, &zero, p->c,
              (inc_t)p->n, 1);
}

static double
seconds_of(void (*multiply)(const product_t *), const product_t *p)
{
    double start = thread_seconds();
    multiply(p);
    return thread_seconds() - start;
}

static bool
run(const product_t *p, int rounds)
{
    double *a = malloc((size_t)rounds * sizeof *a);
    double *b = malloc((size_t)rounds * sizeof *b);
    ours(p);
    plain(p);
    for (int i = 0; i < rounds; i++) {
        a[i] = seconds_of(ours, p);
        b[i] = seconds_of(plain, p);
    }
    double mine = median(a, rounds), theirs = median(b, rounds);
    double gflop = 2e-9 * (double)p->m * (double)p->n * (double)p->k;
    printf("%-8s %6zu x %6zu x %6zu  %7.1f %7.1f  %5.3f%s\n", p->name, p->m,
           p->n, p->k, gflop / mine, gflop / theirs, theirs / mine,
           theirs / mine < goal ? "  below the goal" : "");
    free(a);
    free(b);
    return theirs / mine >= goal;
}

static float *
random_matrix(size_t n)
{
    float *x = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((i * 2654435761u >> 7) % 2001) / 1000 - 1;
    return x;
}

static bool
run_layer(layer_t l, int rounds)
{
    float *x = random_matrix(l.tokens * l.inputs);
    float *w = random_matrix(l.outputs * l.inputs);
    float *y = random_matrix(l.tokens * l.outputs);
    product_t products[] = {
        {"forward", false, true, l.tokens, l.outputs, l.inputs, x, w, y},
        {"dx", false, false, l.tokens, l.inputs, l.outputs, y, w, x},
        {"dW", true, false, l.outputs, l.inputs, l.tokens, y, x, w},
    };
    bool good = true;
    for (int i = 0; i < 3; i++)
        good &= run(&products[i], rounds);
    fsdp_free(x);
    fsdp_free(w);
    fsdp_free(y);
    return good;
}

int
main(int argc, char **argv)
{
    static const layer_t layers[] = {
        {256, 768, 2304}, {256, 768, 768},   {256, 768, 3072},
        {256, 3072, 768}, {256, 768, 50257}, {192, 768, 50257},
    };
    int rounds = argc > 1 ? atoi(argv[1]) : 15;
    bool good = true;
    bli_thread_set_num_threads(1);
    fsdp_set_num_threads(1);
    printf("product       m        n        k     GFLOP/s  plain  ratio\n");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        good &= run_layer(layers[i], rounds);
    return good && rounds > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
