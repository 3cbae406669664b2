/* Ranks: 1 */
/* Three steps of each model against PyTorch's, in float64.
 *
 * The bound.  Rounding errors of a forward and backward are those of exact
 * arithmetic on slightly other numbers: each operation's relative error of u
 * is an error of u times its size in what it makes, as if a bias of that size
 * had been moved (activations here are of size 1, hence max(|p|, 1)), and in a
 * gradient's sum one of u times the largest entry.  Their effect on a number f
 * of the trajectory is to first order
 *
 *     S_f = sum over parameter elements j of |df/dp_j| max(|p_j|, 1)
 *           + |df/dg| max|g|, all gradient elements moved at once
 *           + the largest entry of f's tensor
 *
 * times gamma_K, where K counts the roundings on the longest way through three
 * steps.  The derivatives are measured, one run for each parameter element, with
 * steps so small that nothing bends, and so large that u / step is small.
 * PyTorch's values have an error of the same bound: hence the factor 2. */
#include "mck.h"

#include <math.h>

#include "nn/training.h"
#include "twin/bounded.h"

#define PARAMETER_STEP 0x1p-30
#define GRADIENT_STEP 0x1p-40 /* far below AdamW's eps */

/* Adds |moved - run| / step to the sums, and returns the memory. */
static void
add_effect(double *sum, const double *run, double *moved, size_t n, double step)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += fabs(moved[i] - run[i]) / step;
    fsdp_free(moved);
}

static void
add_effects_of_parameters(training_t *t, const double *run, double *sum)
{
    for (size_t k = 0; k < t->count; k++)
        for (size_t i = 0; i < fsdp_parameter_numel(t->parameter[k]); i++) {
            double *p = &t->init[k][i], was = *p;
            *p += PARAMETER_STEP * fmax(fabs(was), 1);
            add_effect(sum, run, training_run(t), t->length, PARAMETER_STEP);
            *p = was;
        }
}

static void
add_effect_of_gradients(training_t *t, const double *run, double *sum)
{
    t->grad_noise = GRADIENT_STEP;
    add_effect(sum, run, training_run(t), t->length, GRADIENT_STEP);
    t->grad_noise = 0;
}

static void
add_largest(const training_t *t, const double *run, double *sum)
{
    for (size_t i = 0; i < t->num_segments; i++) {
        const training_segment_t *s = &t->segment[i];
        double largest = 0;
        for (size_t j = s->begin; j < s->begin + s->count; j++)
            largest = fmax(largest, fabs(run[j]));
        for (size_t j = s->begin; j < s->begin + s->count; j++)
            sum[j] += largest;
    }
}

static bool
within(const training_t *t, const double *run, const double *want,
       const double *sum, double roundings)
{
    bool good = true;
    for (size_t i = 0; i < t->num_segments && good; i++) {
        const training_segment_t *s = &t->segment[i];
        for (size_t j = s->begin; j < s->begin + s->count && good; j++) {
            double bound = 2 * twin_gamma(roundings) * sum[j];
            good = fabs(run[j] - want[j]) <= bound;
            if (!good)
                fprintf(stderr, "%s, element %zu: %.17g, PyTorch %.17g +- %g\n",
                        s->name, j - s->begin, run[j], want[j], bound);
        }
    }
    return good;
}

static void
check_run(const char *file, double roundings)
{
    twin_begin(FSDP_FP64);
    training_t *t = training_open(file);
    double *run = training_run(t), *want = training_golden(t);
    double *sum = fsdp_calloc(FSDP_MEM_OTHER, t->length * sizeof *sum);
    add_effects_of_parameters(t, run, sum);
    add_effect_of_gradients(t, run, sum);
    add_largest(t, run, sum);
    bool good = within(t, run, want, sum, roundings);
    fsdp_free(run);
    fsdp_free(want);
    fsdp_free(sum);
    training_close(t);
    ck_assert(good);
}

/* Sums of 5, 7 and 6 products, a bias each, and a softmax of 3 on the way down;
 * the same and sums over 4 rows on the way up: below 100 a micro-batch; 20 for
 * clipping and the optimizer.  Three steps. */
#define MLP_ROUNDINGS (3 * (100 + 20))

START_TEST(mlp)
{
    check_run("mlp_sgd", MLP_ROUNDINGS);
    check_run("mlp_adamw", MLP_ROUNDINGS);
}
END_TEST

/* A block down: two norms (8 + 10 each), products of 8, 8, 8 and 32 terms, each
 * with a bias, attention (4 + 9 + 20), GELU (20), two additions: below 160.
 * Two blocks, the last norm and the head (8 + 17 + 10): 360.  Up: twice that,
 * and sums over 18 rows.  20 for clipping and the optimizer.  Three steps. */
#define GPT2_ROUNDINGS (3 * (360 + 720 + 18 + 20))

START_TEST(gpt2)
{
    check_run("gpt2_sgd", GPT2_ROUNDINGS);
    check_run("gpt2_adamw", GPT2_ROUNDINGS);
    check_run("gpt2_untied_sgd", GPT2_ROUNDINGS);
}
END_TEST

/* A block down: two norms (8 + 6 each), products of 8, 16, 8 and 12 terms, the
 * rotation (3), attention (4 + 9 + 20), SiLU and its product (10), two
 * additions: below 130.  Two blocks, the last norm and the head (8 + 17 + 10):
 * 300.  Up: twice that, a key's gradient from two heads, and sums over 18 rows.
 * 20 for clipping and the optimizer.  Three steps. */
#define LLAMA_ROUNDINGS (3 * (300 + 600 + 9 + 18 + 20))

START_TEST(llama)
{
    check_run("llama_sgd", LLAMA_ROUNDINGS);
    check_run("llama_adamw", LLAMA_ROUNDINGS);
    check_run("llama_tied_sgd", LLAMA_ROUNDINGS);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("golden training");
    TCase *tcase = tcase_create("training");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, mlp);
    tcase_add_test(tcase, gpt2);
    tcase_add_test(tcase, llama);
    return mck_run(argc, argv, suite);
}
