/* Ranks: 1 */
/* Which elements a dropout keeps, of an operator and of a model. */
#include "mck.h"

#include "fsdp/random.h"
#include "nn/nn_case.h"
#include "nn/small_gpt2.h"

enum { SAMPLES = 6, PER_SAMPLE = 200 };

/* The dropout of ones for samples [first, first + count). */
static void
mask(fsdp_tape_options_t options, uint32_t first, size_t count, uint32_t layer,
     double *out)
{
    options.first_sample = first;
    double ones[SAMPLES * PER_SAMPLE];
    for (size_t i = 0; i < SAMPLES * PER_SAMPLE; i++)
        ones[i] = 1;
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *x =
        nn_tensor(tape, FSDP_FP64, 2, (size_t[]){count, PER_SAMPLE}, ones);
    fsdp_tensor_t *y = fsdp_dropout(tape, x, 0.25, layer);
    memcpy(out, y->data, count * PER_SAMPLE * sizeof *out);
    fsdp_tape_destroy(&tape);
}

/* The rule of tensor/kernels.h, a word at a time. */
START_TEST(masks_follow_the_rule)
{
    fsdp_tape_options_t options = {
        .grad_enabled = true, .training = true, .seed = 21, .step = 4};
    double got[SAMPLES * PER_SAMPLE];
    mask(options, 10, SAMPLES, 77, got);
    for (size_t s = 0; s < SAMPLES; s++)
        for (size_t e = 0; e < PER_SAMPLE; e++) {
            uint32_t word = fsdp_random_word(21, FSDP_RANDOM_DROPOUT, 77,
                                             (uint64_t)4 << 32 | (10 + s), e);
            bool kept = fsdp_random_uniform(word) >= 0.25;
            ck_assert(got[s * PER_SAMPLE + e] == (kept ? 1 / 0.75 : 0));
        }
}
END_TEST

/* One batch or several, whatever the split: the same masks. */
START_TEST(masks_do_not_see_the_batch)
{
    fsdp_tape_options_t options = {
        .grad_enabled = true, .training = true, .seed = 21, .step = 4};
    double whole[SAMPLES * PER_SAMPLE], part[SAMPLES * PER_SAMPLE];
    mask(options, 0, SAMPLES, 77, whole);
    for (size_t cut = 1; cut < SAMPLES; cut++) {
        mask(options, 0, cut, 77, part);
        mask(options, (uint32_t)cut, SAMPLES - cut, 77,
             part + cut * PER_SAMPLE);
        ck_assert_mem_eq(whole, part, sizeof whole);
    }
}
END_TEST

/* Each of seed, step, sample and layer changes the mask. */
START_TEST(masks_depend_on_all)
{
    fsdp_tape_options_t base = {.training = true, .seed = 21, .step = 4};
    fsdp_tape_options_t seed = base, step = base;
    seed.seed++;
    step.step++;
    double m[5][PER_SAMPLE];
    mask(base, 0, 1, 77, m[0]);
    mask(seed, 0, 1, 77, m[1]);
    mask(step, 0, 1, 77, m[2]);
    mask(base, 1, 1, 77, m[3]);
    mask(base, 0, 1, 78, m[4]);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            ck_assert(memcmp(m[i], m[j], sizeof m[i]) != 0);
}
END_TEST

/* Of a whole model: two samples at once, or one after the other. */
START_TEST(gpt2_dropout_does_not_see_the_batch)
{
    fsdp_module_t *m = small_gpt2(true, 0.25);
    fsdp_tape_options_t options = {.training = true, .seed = 3, .step = 8};
    double logits[2][2][7];
    for (int split = 0; split < 2; split++)
        for (uint32_t b = 0; b < (split ? 2u : 1u); b++) {
            options.first_sample = b;
            fsdp_tape_t *tape = fsdp_tape_create(&options);
            size_t two[2] = {split ? 1 : 2, 5};
            fsdp_tensor_t *x = nn_int32(tape, 2, two, tokens + 5 * b);
            fsdp_tensor_t *y = fsdp_gpt2_logits(tape, m, x);
            memcpy(logits[split][b], y->data, fsdp_tensor_bytes(y));
            fsdp_tape_destroy(&tape);
        }
    ck_assert_mem_eq(logits[0], logits[1], sizeof logits[0]);
    fsdp_module_destroy(&m);
}
END_TEST

/* eval() is the model without dropout, train() is not. */
START_TEST(evaluation_has_no_dropout)
{
    fsdp_module_t *with = small_gpt2(true, 0.25),
                  *without = small_gpt2(true, 0);
    fsdp_tape_options_t train = {.training = true, .seed = 3};
    fsdp_tape_options_t eval = {.training = false, .seed = 3};
    double plain = gpt2_loss(without, &eval);
    ck_assert(gpt2_loss(with, &eval) == plain);
    ck_assert(gpt2_loss(with, &train) != plain);
    ck_assert(gpt2_loss(without, &train) == plain);
    fsdp_module_destroy(&with);
    fsdp_module_destroy(&without);
}
END_TEST

/* The number of a dropout is a hash of its name in Hugging Face's model. */
static fsdp_tensor_t *
drop(fsdp_tape_t *tape, fsdp_tensor_t *x, const char *name)
{
    return fsdp_dropout(tape, x, 0.25, (uint32_t)fsdp_hash_name(name));
}

static fsdp_tensor_t *
call(fsdp_tape_t *tape, fsdp_module_t *m, const char *name, fsdp_tensor_t *x)
{
    return fsdp_module_call1(fsdp_module_find(m, name), tape, x);
}

static fsdp_tensor_t *
block_by_hand(fsdp_tape_t *tape, fsdp_module_t *m, fsdp_tensor_t *x, int block)
{
    char name[6][64];
    static const char *const part[] = {"ln_1", "attn.c_attn", "attn.c_proj",
                                       "ln_2", "mlp.c_fc",    "mlp.c_proj"};
    for (int i = 0; i < 6; i++)
        snprintf(name[i], sizeof name[i], "transformer.h.%d.%s", block,
                 part[i]);
    char at[3][64];
    snprintf(at[0], sizeof at[0], "transformer.h.%d.attn.attn_dropout", block);
    snprintf(at[1], sizeof at[1], "transformer.h.%d.attn.resid_dropout", block);
    snprintf(at[2], sizeof at[2], "transformer.h.%d.mlp.dropout", block);

    fsdp_tensor_t *y = call(tape, m, name[0], x);
    y = call(tape, m, name[1], y);
    y = fsdp_attention(tape, y, 2, 0.25, (uint32_t)fsdp_hash_name(at[0]));
    y = drop(tape, call(tape, m, name[2], y), at[1]);
    x = fsdp_add(tape, x, y);
    y = call(tape, m, name[4], call(tape, m, name[3], x));
    y = call(tape, m, name[5], fsdp_gelu_tanh(tape, y));
    return fsdp_add(tape, x, drop(tape, y, at[2]));
}

/* All of the model's dropouts, each with its own number: the same bits. */
START_TEST(gpt2_by_hand)
{
    fsdp_module_t *m = small_gpt2(false, 0.25);
    fsdp_tape_options_t options = {.training = true, .seed = 3, .step = 8};
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *index = nn_int32(tape, 2, (size_t[]){2, 5}, tokens);
    fsdp_tensor_t *want = call(tape, m, "transformer", index);
    fsdp_tensor_t *x = fsdp_add(tape, call(tape, m, "transformer.wte", index),
                                call(tape, m, "transformer.wpe", index));
    x = drop(tape, x, "transformer.drop");
    for (int block = 0; block < 2; block++)
        x = block_by_hand(tape, m, x, block);
    x = call(tape, m, "transformer.ln_f", x);
    ck_assert_mem_eq(x->data, want->data, fsdp_tensor_bytes(want));
    fsdp_tape_destroy(&tape);
    fsdp_module_destroy(&m);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("dropout");
    TCase *tcase = tcase_create("dropout");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, masks_follow_the_rule);
    tcase_add_test(tcase, masks_do_not_see_the_batch);
    tcase_add_test(tcase, masks_depend_on_all);
    tcase_add_test(tcase, gpt2_dropout_does_not_see_the_batch);
    tcase_add_test(tcase, gpt2_by_hand);
    tcase_add_test(tcase, evaluation_has_no_dropout);
    return mck_run(argc, argv, suite);
}
