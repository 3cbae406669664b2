/* Ranks: 1 */
/* Each kernel gives the same bits on 1, 2, 3 and 4 threads (attention has a
 * suite of its own), and asks the system for no memory once it has run. */
#include "mck.h"

#include "fsdp/tensor.h"
#include "tensor/kernels.h"
#include "twin/numbers.h"

/* Large enough for several blocks of every kernel, and uneven. */
enum { ROWS = 277, COLUMNS = 411, N = ROWS * COLUMNS };

typedef struct inputs {
    const fsdp_kernels_t *k;
    numbers_t a, b, column, row;
    int32_t index[ROWS];
} inputs_t;

/* Where a job writes; zeroed before. */
typedef struct outputs {
    numbers_t x, y, z, column, row;
    double sum;
} outputs_t;

typedef void job_t(const inputs_t *in, outputs_t *out);

static void
elementwise(const inputs_t *in, outputs_t *out)
{
    in->k->add(in->a.data, in->b.data, out->x.data, N);
    in->k->accumulate(out->x.data, in->b.data, N);
    in->k->scale(out->x.data, 0.3, out->y.data, N);
    in->k->divide(out->y.data, 7, out->y.data, N);
    in->k->multiply(in->a.data, in->b.data, out->z.data, N);
    in->k->fill(out->z.data, 3, N / 2);
}

static void
activations(const inputs_t *in, outputs_t *out)
{
    in->k->gelu_tanh(in->a.data, out->x.data, N);
    in->k->gelu_erf(in->a.data, out->y.data, N);
    in->k->relu(in->a.data, out->z.data, N);
}

static void
activations_backward(const inputs_t *in, outputs_t *out)
{
    in->k->gelu_tanh_backward(in->a.data, in->b.data, out->x.data, N);
    in->k->gelu_erf_backward(in->a.data, in->b.data, out->y.data, N);
    in->k->relu_backward(in->a.data, in->b.data, out->z.data, N);
}

static void
dropout(const inputs_t *in, outputs_t *out)
{
    fsdp_dropout_key_t key = {.p = 0.2, .seed = 4, .step = 1, .layer = 9};
    in->k->dropout(&key, in->a.data, out->x.data, ROWS, COLUMNS);
    in->k->dropout(&key, in->a.data, out->y.data, 1, N);
}

static void
rows(const inputs_t *in, outputs_t *out)
{
    in->k->add_bias(in->a.data, in->row.data, out->x.data, ROWS, COLUMNS);
    in->k->sum_rows(in->a.data, out->row.data, ROWS, COLUMNS);
}

static void
embedding(const inputs_t *in, outputs_t *out)
{
    in->k->embedding(in->index, in->a.data, out->x.data, ROWS, ROWS, COLUMNS);
    in->k->embedding_backward(in->index, in->a.data, out->y.data, ROWS, ROWS,
                              COLUMNS);
}

static void
layer_norm(const inputs_t *in, outputs_t *out)
{
    in->k->layer_norm(in->a.data, in->row.data, in->row.data, out->x.data,
                      out->column.data, out->z.data, ROWS, COLUMNS, 1e-5);
}

static void
layer_norm_backward(const inputs_t *in, outputs_t *out)
{
    in->k->layer_norm_backward(in->a.data, in->row.data, in->column.data,
                               in->column.data, in->b.data, out->x.data,
                               out->row.data, out->z.data, ROWS, COLUMNS);
}

static void
rms_norm(const inputs_t *in, outputs_t *out)
{
    in->k->rms_norm(in->a.data, in->row.data, out->x.data, out->column.data,
                    ROWS, COLUMNS, 1e-6);
    in->k->rms_norm_backward(in->a.data, in->row.data, in->column.data,
                             in->b.data, out->y.data, out->row.data, ROWS,
                             COLUMNS);
}

/* Three heads of 136 in a row of 408; b is the table. */
static void
llama_elements(const inputs_t *in, outputs_t *out)
{
    in->k->silu(in->a.data, out->x.data, N);
    in->k->silu_backward(in->a.data, in->b.data, out->y.data, N);
    in->k->rotary(in->a.data, in->b.data, out->z.data, ROWS, ROWS, 3, 136,
                  false);
}

static void
losses(const inputs_t *in, outputs_t *out)
{
    in->k->cross_entropy(in->a.data, in->index, 5, out->column.data,
                         out->x.data, 0.5, ROWS, COLUMNS);
    out->sum =
        in->k->squared_error(in->a.data, in->b.data, 0.5, out->y.data, N);
    out->sum += in->k->sum(in->a.data, N);
}

static void
optimizers(const inputs_t *in, outputs_t *out)
{
    in->k->sgd(out->x.data, in->a.data, out->row.data, COLUMNS, 0.1, 0.9, 0.1,
               0.01, true, false);
    in->k->sgd(out->x.data, in->a.data, NULL, N, 0.1, 0, 0, 0.01, false, true);
    in->k->adamw(out->x.data, in->b.data, out->y.data, out->z.data, N, 1e-2,
                 0.9, 0.99, 1e-8, 0.1, 3);
}

static void
gemm(const inputs_t *in, outputs_t *out)
{
    in->k->gemm(false, true, ROWS, ROWS, COLUMNS, 1, in->a.data, COLUMNS,
                in->b.data, COLUMNS, 0, out->x.data, ROWS);
}

static job_t *const jobs[] = {elementwise,
                              activations,
                              activations_backward,
                              dropout,
                              rows,
                              embedding,
                              layer_norm,
                              layer_norm_backward,
                              rms_norm,
                              llama_elements,
                              losses,
                              optimizers,
                              gemm};
enum { NUM_JOBS = sizeof jobs / sizeof *jobs };

static inputs_t
make_inputs(fsdp_dtype_t dtype)
{
    inputs_t in = {
        .k = fsdp_kernels(dtype),
        .a = numbers_random(dtype, N, 1, 3),
        .b = numbers_random(dtype, N, 2, 1),
        .column = numbers_random(dtype, ROWS, 3, 1),
        .row = numbers_random(dtype, COLUMNS, 4, 1),
    };
    for (int i = 0; i < ROWS; i++)
        in.index[i] = i * i % 97;
    return in;
}

static outputs_t
make_outputs(fsdp_dtype_t dtype)
{
    return (outputs_t){
        numbers_random(dtype, N, 5, 0),       numbers_random(dtype, N, 5, 0),
        numbers_random(dtype, N, 5, 0),       numbers_random(dtype, ROWS, 5, 0),
        numbers_random(dtype, COLUMNS, 5, 0), 0};
}

static void
free_outputs(outputs_t *out)
{
    numbers_t all[] = {out->x, out->y, out->z, out->column, out->row};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        numbers_free(all[i]);
}

static bool
same(const outputs_t *a, const outputs_t *b)
{
    return numbers_same_bits(a->x, b->x) && numbers_same_bits(a->y, b->y) &&
           numbers_same_bits(a->z, b->z) &&
           numbers_same_bits(a->column, b->column) &&
           numbers_same_bits(a->row, b->row) && a->sum == b->sum;
}

static void
run_on_all_threads(const inputs_t *in, int job)
{
    outputs_t alone = make_outputs(in->k->dtype);
    jobs[job](in, &alone);
    for (int threads = 2; threads <= 4; threads++) {
        outputs_t out = make_outputs(in->k->dtype);
        fsdp_set_num_threads(threads);
        ck_assert_int_eq(fsdp_get_num_threads(), threads);
        jobs[job](in, &out);
        fsdp_set_num_threads(1);
        ck_assert_msg(same(&alone, &out), "job %d on %d threads", job, threads);
        free_outputs(&out);
    }
    free_outputs(&alone);
}

START_TEST(threads_do_not_show)
{
    static const fsdp_dtype_t dtypes[] = {FSDP_FP32, FSDP_FP64};
    for (int t = 0; t < 2; t++) {
        inputs_t in = make_inputs(dtypes[t]);
        for (int job = 0; job < NUM_JOBS; job++)
            run_on_all_threads(&in, job);
        numbers_t all[] = {in.a, in.b, in.column, in.row};
        for (int i = 0; i < 4; i++)
            numbers_free(all[i]);
    }
}
END_TEST

/* Under AddressSanitizer no freed block is kept for the next request. */
#ifndef __SANITIZE_ADDRESS__
START_TEST(no_memory_in_the_steady_state)
{
    inputs_t in = make_inputs(FSDP_FP32);
    outputs_t out = make_outputs(FSDP_FP32);
    for (int job = 0; job < NUM_JOBS; job++)
        jobs[job](&in, &out);
    long requests = fsdp_memory_system_requests();
    for (int job = 0; job < NUM_JOBS; job++)
        jobs[job](&in, &out);
    ck_assert_int_eq(fsdp_memory_system_requests(), requests);
    free_outputs(&out);
    numbers_t all[] = {in.a, in.b, in.column, in.row};
    for (int i = 0; i < 4; i++)
        numbers_free(all[i]);
}
END_TEST
#endif

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("threads");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, threads_do_not_show);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(tcase, no_memory_in_the_steady_state);
#endif
    return mck_run(argc, argv, suite);
}
