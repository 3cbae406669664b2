/* Ranks: 1 */
/* GPT-2 with checkpoints around this and that: the bits stay, the memory goes by
 * a formula, and hooks run when they should. */
#include "mck.h"

#include <string.h>

#include "fsdp/activation_checkpoint.h"
#include "fsdp/layers.h"
#include "fsdp/status.h"
#include "nn/nn_case.h"
#include "nn/small_gpt2.h"

/* ---- bits ---------------------------------------------------------------- */

/* Modules of the small GPT-2 to be checkpointed; nested ones too. */
static const char *const wrapped[][6] = {
    {"transformer.h.0", "transformer.h.1"},
    {"transformer.h.1"},
    {"transformer.h.0", "transformer.h.0.attn", "transformer.h.1.mlp"},
    {"transformer"},
    {"", "transformer", "transformer.h.0", "transformer.h.0.mlp",
     "transformer.h.0.mlp.c_fc"},
    {"transformer.wte", "transformer.h.0.ln_1", "transformer.ln_f", "lm_head"},
};
enum { WRAPPED = sizeof wrapped / sizeof *wrapped, MAX_PARAMETERS = 64 };

static void
wrap(fsdp_module_t *model, const char *const *names)
{
    for (int i = 0; i < 6 && names[i] != NULL; i++)
        ck_assert_int_eq(
            fsdp_checkpoint_wrapper(fsdp_module_find(model, names[i])),
            FSDP_OK);
}

static void
same_gradients(fsdp_module_t *a, fsdp_module_t *b, int set)
{
    fsdp_parameter_t *p[MAX_PARAMETERS], *q[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(a, p, MAX_PARAMETERS);
    ck_assert_uint_eq(fsdp_module_parameters(b, q, MAX_PARAMETERS), count);
    for (size_t k = 0; k < count; k++) {
        ck_assert_msg((p[k]->grad == NULL) == (q[k]->grad == NULL),
                      "set %d: %s", set, p[k]->name);
        ck_assert_int_eq(q[k]->awaited_uses, 0);
        if (p[k]->grad != NULL)
            ck_assert_msg(memcmp(p[k]->grad->data, q[k]->grad->data,
                                 fsdp_tensor_bytes(p[k]->grad)) == 0,
                          "set %d: %s", set, p[k]->name);
    }
}

static void
freeze(fsdp_module_t *model, const char *name)
{
    if (name != NULL)
        fsdp_module_find_parameter(model, name)->requires_grad = false;
}

/* Two backwards, so that gradients are added up, the second of another step. */
static double
two_losses(fsdp_module_t *model)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.seed = 3;
    double first = gpt2_loss(model, &options);
    options.step = 1;
    return first + 3 * gpt2_loss(model, &options);
}

START_TEST(same_bits)
{
    static const char *const frozen[] = {NULL, "transformer.wte.weight",
                                         "transformer.h.0.attn.c_attn.weight",
                                         "transformer.h.1.ln_2.bias"};
    for (int f = 0; f < 4; f++)
        for (int variant = 0; variant < 4; variant++) {
            bool tied = variant & 1;
            double dropout = variant & 2 ? 0.3 : 0;
            fsdp_module_t *plain = small_gpt2(tied, dropout);
            freeze(plain, frozen[f]);
            double loss = two_losses(plain);
            for (int set = 0; set < WRAPPED; set++) {
                fsdp_module_t *m = small_gpt2(tied, dropout);
                freeze(m, frozen[f]);
                wrap(m, wrapped[set]);
                ck_assert(two_losses(m) == loss);
                same_gradients(plain, m, set);
                fsdp_module_destroy(&m);
            }
            fsdp_module_destroy(&plain);
        }
}
END_TEST

/* ---- memory -------------------------------------------------------------- */

/* Large enough that an attention's scratch memory, some 70 KB whatever its
 * shape, is not in the peak. */
enum { B = 4, T = 64, CHANNELS = 32, HEADS = 2, VOCABULARY = 24 };

typedef struct peaks {
    size_t after_forward, peak;
} peaks_t;

/* Activations of a float32 model of `layers` blocks, of which the first
 * `checkpointed` are. */
static peaks_t
measure(size_t layers, size_t checkpointed)
{
    fsdp_gpt2_config_t config = {.n_layer = layers,
                                 .n_head = HEADS,
                                 .n_embd = CHANNELS,
                                 .vocab_size = VOCABULARY,
                                 .n_positions = T};
    static int32_t index[B * T];
    fsdp_module_t *m = fsdp_gpt2_create(&config);
    for (size_t i = 0; i < checkpointed; i++)
        fsdp_checkpoint_wrapper(fsdp_gpt2_block(m, (int)i));
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_memory_reset_peaks();
    fsdp_tensor_t *x = nn_int32(tape, 2, (size_t[]){B, T}, index);
    fsdp_tensor_t *y = nn_int32(tape, 2, (size_t[]){B, T}, index);
    fsdp_tensor_t *loss = fsdp_gpt2_loss(tape, m, x, y);
    peaks_t p = {.after_forward = fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION)};
    fsdp_backward(tape, loss);
    p.peak = fsdp_memory_peak_bytes(FSDP_MEM_ACTIVATION);
    fsdp_tape_destroy(&tape);
    fsdp_module_destroy(&m);
    return p;
}

/* In numbers of 4 bytes, with X = B T C of a tensor [B,T,C]:
 *
 *  inside a block  ln_1 X, qkv 3X, attention X, c_proj X, sum X, ln_2 X, c_fc 4X,
 *                  gelu 4X, c_proj X; two statistics of B T numbers for each norm,
 *                  and one number for each head and position
 *  always          tokens, targets, two embeddings X, their sum X, each block's
 *                  output X, the loss; until its backward ln_f X, its
 *                  statistics, and the head's gradient X
 *  the most        in the last block's MLP: the output of the block is gone, its
 *                  gradient came; c_proj's output is gone; the gradients of
 *                  gelu's output and of its input are there, 8X together
 *
 * The last block is computed again when the backward reaches it, and only it. */
START_TEST(memory_follows_the_formula)
{
    size_t x = B * T * CHANNELS, bt = B * T;
    size_t inside = 17 * x + 4 * bt + HEADS * bt;
    for (size_t layers = 1; layers <= 4; layers++)
        for (size_t n = 0; n <= layers; n++) {
            size_t kept = layers - n;
            size_t always = 2 * bt + 3 * x + layers * x + 1;
            peaks_t p = measure(layers, n);
            ck_assert_uint_eq(p.after_forward,
                              4 * (always + kept * inside + x + 2 * bt + x));
            size_t last = kept > 0 ? kept : 1; /* plain ones come last */
            ck_assert_msg(p.peak == 4 * (always + last * inside + 7 * x),
                          "%zu layers, %zu checkpointed: %zu, expected %zu",
                          layers, n, p.peak,
                          4 * (always + last * inside + 7 * x));
        }
}
END_TEST

/* Without a backward to come only the outputs stay, and nothing runs twice. */
START_TEST(no_gradients)
{
    fsdp_tape_options_t off = {.training = true};
    fsdp_module_t *m = small_gpt2(true, 0), *plain = small_gpt2(true, 0);
    wrap(m, wrapped[0]);
    size_t live[2];
    for (int k = 0; k < 2; k++) {
        fsdp_tape_t *tape = fsdp_tape_create(&off);
        fsdp_tensor_t *x = nn_int32(tape, 2, (size_t[]){2, 5}, tokens);
        fsdp_tensor_t *y = nn_int32(tape, 2, (size_t[]){2, 5}, targets);
        fsdp_gpt2_loss(tape, k == 0 ? m : plain, x, y);
        live[k] = fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION);
        fsdp_tape_destroy(&tape);
    }
    ck_assert(gpt2_loss(m, &off) == gpt2_loss(plain, &off));
    /* Two blocks of 17 X; statistics are not kept anyway. */
    ck_assert_uint_eq(live[1] - live[0], 2 * 17 * (2 * 5 * 8) * 8);
    fsdp_module_destroy(&m);
    fsdp_module_destroy(&plain);
}
END_TEST

/* ---- hooks --------------------------------------------------------------- */

static char story[1000];

static void
tell(const char *who, const char *what, const fsdp_tape_t *tape)
{
    strcat(story, who);
    strcat(story, what);
    strcat(story, fsdp_tape_is_recomputing(tape) ? "* " : " ");
}

static fsdp_values_t
pre_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
            fsdp_values_t inputs)
{
    (void)module;
    tell(context, ".before", tape);
    return inputs;
}

static fsdp_values_t
post_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
             fsdp_values_t outputs)
{
    (void)module;
    tell(context, ".after", tape);
    return outputs;
}

static void
say_end(void *context, fsdp_tape_t *tape)
{
    tell(context, ".end", tape);
}

static void
pre_backward(void *context, fsdp_tape_t *tape)
{
    tell(context, ".grad", tape);
    if (strcmp(context, "b") == 0)
        fsdp_tape_queue_callback(tape, say_end, context);
}

static void
post_backward(void *context, fsdp_tape_t *tape)
{
    tell(context, ".done", tape);
}

static fsdp_values_t
chain_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    for (int i = 0; i < self->num_children; i++)
        inputs = fsdp_module_call(self->child[i], tape, inputs);
    return inputs;
}

static void
add_hooks(fsdp_module_t *module, const char *name)
{
    fsdp_module_add_hooks(
        module, &(fsdp_module_hooks_t){.context = (void *)name,
                                       .pre_forward = pre_forward,
                                       .post_forward = post_forward,
                                       .pre_backward = pre_backward,
                                       .post_backward = post_backward});
}

static fsdp_module_t *
chain(void)
{
    fsdp_module_t *p = fsdp_module_create("p", "Chain", chain_forward, NULL, 0);
    fsdp_module_add_child(p, fsdp_linear_create("a", 3, 3, true, FSDP_FP64, 1));
    fsdp_module_add_child(p, fsdp_linear_create("b", 3, 3, true, FSDP_FP64, 1));
    add_hooks(p, "p");
    add_hooks(p->child[0], "a");
    add_hooks(p->child[1], "b");
    return p;
}

static void
run_chain(fsdp_module_t *p, bool backward)
{
    static const double numbers[6] = {1, 2, 3, 4, 5, 6};
    double grad[6];
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = nn_tensor(tape, FSDP_FP64, 2, (size_t[]){2, 3}, numbers);
    x = nn_probe(tape, x, grad);
    fsdp_tensor_t *y = fsdp_module_call1(p, tape, x);
    if (backward)
        fsdp_backward(tape, nn_weighted_sum(tape, y, numbers));
    fsdp_tape_destroy(&tape);
}

/* What hangs on the graph runs once, the forward's hooks of modules inside once
 * more: after the hooks on the output, when b's backward looks at its input. */
START_TEST(hooks_run_when_they_should)
{
    fsdp_module_t *p = chain();
    story[0] = '\0';
    run_chain(p, true);
    ck_assert_str_eq(story, "p.before a.before a.after b.before b.after "
                            "p.after b.grad p.grad b.done a.grad a.done "
                            "p.done b.end ");
    ck_assert_int_eq(fsdp_checkpoint_wrapper(p), FSDP_OK);
    story[0] = '\0';
    run_chain(p, true);
    ck_assert_str_eq(story, "p.before a.before a.after b.before b.after "
                            "p.after b.grad p.grad a.before* a.after* "
                            "b.before* b.after* b.done a.grad a.done p.done "
                            "b.end ");
    fsdp_module_destroy(&p);
}
END_TEST

/* The inner checkpoint is computed again for itself, after the outer one; a runs
 * three times, as PyTorch's does. */
START_TEST(inner_checkpoints_wait)
{
    fsdp_module_t *p = chain();
    fsdp_checkpoint_wrapper(p);
    fsdp_checkpoint_wrapper(p->child[0]);
    fsdp_module_t *deep = fsdp_linear_create("c", 3, 3, true, FSDP_FP64, 1);
    add_hooks(deep, "c");
    fsdp_module_add_child(p->child[0], deep);
    p->child[0]->recomputed = chain_forward;
    story[0] = '\0';
    run_chain(p, true);
    ck_assert_str_eq(story,
                     "p.before a.before c.before c.after a.after b.before "
                     "b.after p.after b.grad p.grad a.before* c.before* "
                     "c.after* a.after* b.before* b.after* b.done c.grad "
                     "a.grad c.before* c.after* c.done a.done p.done b.end ");
    fsdp_module_destroy(&p);
}
END_TEST

static fsdp_values_t
same_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    (void)self;
    (void)tape;
    return inputs;
}

/* A module inside whose output is its input, which the graph outside made: what
 * the first run hung on it is there once. */
START_TEST(hooks_on_what_passes_through)
{
    fsdp_module_t *p = fsdp_module_create("p", "Chain", chain_forward, NULL, 0);
    fsdp_module_t *e = fsdp_module_create("e", "Same", same_forward, NULL, 0);
    fsdp_module_add_child(p, e);
    fsdp_module_add_child(p, fsdp_linear_create("a", 3, 3, true, FSDP_FP64, 1));
    fsdp_module_add_hooks(e, &(fsdp_module_hooks_t){
                                 .context = "e", .pre_backward = pre_backward});
    fsdp_checkpoint_wrapper(p);
    story[0] = '\0';
    run_chain(p, true);
    ck_assert_str_eq(story, "e.grad ");
    fsdp_module_destroy(&p);
}
END_TEST

static fsdp_values_t
queue_at_forward(void *context, fsdp_module_t *module, fsdp_tape_t *tape,
                 fsdp_values_t inputs)
{
    (void)module;
    if (fsdp_tape_is_recomputing(tape))
        fsdp_tape_queue_callback(tape, say_end, context);
    return inputs;
}

/* What is queued while something is computed again waits for the end of the
 * backward. */
START_TEST(callbacks_wait_for_the_whole_backward)
{
    fsdp_module_t *p = chain();
    fsdp_module_add_hooks(
        p->child[1], &(fsdp_module_hooks_t){.context = (void *)"q",
                                            .pre_forward = queue_at_forward});
    fsdp_checkpoint_wrapper(p);
    story[0] = '\0';
    run_chain(p, true);
    const char *end = " p.done b.end q.end ";
    ck_assert_uint_gt(strlen(story), strlen(end));
    ck_assert_str_eq(story + strlen(story) - strlen(end), end);
    fsdp_module_destroy(&p);
}
END_TEST

/* ---- what hooks stand between -------------------------------------------- */

static fsdp_values_t
relu_chain_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    for (int i = 0; i < self->num_children; i++) {
        inputs = fsdp_module_call(self->child[i], tape, inputs);
        inputs.tensor[0] = fsdp_relu(tape, inputs.tensor[0]);
    }
    return inputs;
}

/* A relu looks at its own output, which reaches the next operator through the
 * node of a hook only. */
START_TEST(outputs_behind_hooks_come_back)
{
    double seen[2][9];
    for (int k = 0; k < 2; k++) {
        fsdp_module_t *p = chain();
        p->forward = relu_chain_forward;
        if (k == 1)
            fsdp_checkpoint_wrapper(p);
        run_chain(p, true);
        memcpy(seen[k], p->child[0]->parameter[0]->grad->data, sizeof seen[k]);
        fsdp_module_destroy(&p);
    }
    ck_assert(memcmp(seen[0], seen[1], sizeof seen[0]) == 0);
    ck_assert(memcmp(seen[0], (double[9]){0}, sizeof seen[0]) != 0);
}
END_TEST

/* Values that no gradient asks for come back with the others, and go with
 * them. */
START_TEST(nothing_stays_after_the_region)
{
    static const double numbers[6] = {1, 2, 3, 4, 5, 6};
    fsdp_module_t *p = chain();
    fsdp_module_set_requires_grad(p->child[0], false);
    fsdp_checkpoint_wrapper(p);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = nn_tensor(tape, FSDP_FP64, 2, (size_t[]){2, 3}, numbers);
    fsdp_tensor_t *y = fsdp_module_call1(p, tape, x);
    fsdp_backward(tape, nn_weighted_sum(tape, y, numbers));
    /* x and the loss */
    ck_assert_uint_eq(fsdp_memory_live_bytes(FSDP_MEM_ACTIVATION), 48 + 8);
    fsdp_tape_destroy(&tape);
    fsdp_module_destroy(&p);
}
END_TEST

/* ---- mistakes ------------------------------------------------------------ */

START_TEST(wrapped_twice)
{
    fsdp_module_t *p = chain();
    ck_assert_int_eq(fsdp_checkpoint_wrapper(p), FSDP_OK);
    ck_assert_int_eq(fsdp_checkpoint_wrapper(p), FSDP_ERR_USAGE);
    ck_assert_str_eq(fsdp_error_message(),
                     "module \"p\" has an activation checkpoint already; wrap "
                     "each module once");
    fsdp_module_destroy(&p);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("activation checkpoint");
    TCase *tcase = tcase_create("checkpoints");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, same_bits);
    tcase_add_test(tcase, memory_follows_the_formula);
    tcase_add_test(tcase, no_gradients);
    tcase_add_test(tcase, hooks_run_when_they_should);
    tcase_add_test(tcase, inner_checkpoints_wait);
    tcase_add_test(tcase, hooks_on_what_passes_through);
    tcase_add_test(tcase, callbacks_wait_for_the_whole_backward);
    tcase_add_test(tcase, outputs_behind_hooks_come_back);
    tcase_add_test(tcase, nothing_stays_after_the_region);
    tcase_add_test(tcase, wrapped_twice);
    return mck_run(argc, argv, suite);
}
