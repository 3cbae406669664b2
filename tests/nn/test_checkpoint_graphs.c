/* Ranks: 1 */
/* Random graphs with random checkpoints in them: every gradient has the bits
 * that it has without.  Values are used several times, inside and outside of
 * checkpoints, parameters too; some are frozen; outputs are dropped; checkpoints
 * lie in each other. */
#include "mck.h"

#include <math.h>
#include <string.h>

#include "fsdp/activation_checkpoint.h"
#include "nn/nn_case.h"
#include "twin/numbers.h"

enum {
    N = 3,
    C = 4,
    WEIGHTS = 5,
    STEPS = 7,
    VALUES = 2 + 2 * STEPS,
    DEPTH = 3
};

typedef enum kind {
    LINEAR,
    ADD,
    GELU,
    RELU,
    NORM,
    DROPOUT,
    RESHAPE,
    SUB,
    KINDS
} kind_t;

/* A list of steps; value 0 and 1 are the inputs, each step makes one more, a
 * call of another program two.  The outputs are two of them. */
typedef struct program program_t;

typedef struct step {
    kind_t kind;
    int a, b, weight;
    uint32_t layer;
    program_t *sub;
} step_t;

struct program {
    step_t step[STEPS];
    int output[2];
    bool checkpointed;
};

typedef struct graph {
    program_t *root;
    fsdp_parameter_t *weight[WEIGHTS];
    uint32_t seed;
    size_t draws;
    double weight_of_loss[2][N * C], input[2][N * C], input_grad[2][N * C];
    double loss;
} graph_t;

static graph_t graph;
static bool with_checkpoints;
static int run_again;

static int
draw(int n)
{
    double x = twin_random(graph.seed, graph.draws++); /* in (-1, 1) */
    return (int)((x + 1) / 2 * n) % n;
}

/* Later values are drawn more often, so that the graph is deep. */
static int
draw_value(int have)
{
    int first = draw(have), second = draw(have);
    return first > second ? first : second;
}

static program_t *
random_program(int depth)
{
    program_t *p = fsdp_calloc(FSDP_MEM_OTHER, sizeof *p);
    int have = 2;
    for (int i = 0; i < STEPS; i++) {
        step_t *s = &p->step[i];
        *s = (step_t){.kind = (kind_t)draw(depth > 0 ? KINDS : SUB),
                      .a = draw_value(have),
                      .b = draw_value(have),
                      .weight = 2 + draw(WEIGHTS - 2),
                      .layer = (uint32_t)graph.draws};
        if (depth > 0 && i == STEPS / 2)
            s->kind = SUB;
        if (s->kind == SUB)
            s->sub = random_program(depth - 1);
        have += s->kind == SUB ? 2 : 1;
    }
    p->output[0] = have - 1;
    p->output[1] = draw_value(have);
    p->checkpointed = draw(3) > 0;
    return p;
}

static void
free_program(program_t *p)
{
    for (int i = 0; i < STEPS; i++)
        if (p->step[i].sub != NULL)
            free_program(p->step[i].sub);
    fsdp_free(p);
}

/* ---- running it ---------------------------------------------------------- */

static fsdp_values_t run(void *context, fsdp_tape_t *tape,
                         fsdp_values_t inputs);

static fsdp_values_t
call(program_t *p, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    if (!with_checkpoints || !p->checkpointed)
        return run(p, tape, inputs);
    return fsdp_tape_checkpoint(tape, run, p, inputs);
}

static fsdp_tensor_t *
run_step(const step_t *s, fsdp_tape_t *tape, fsdp_tensor_t *a, fsdp_tensor_t *b)
{
    static const size_t turned[2] = {C, N}, back[2] = {N, C};
    fsdp_parameter_t *w = graph.weight[s->weight];
    switch (s->kind) {
    case LINEAR:
        return fsdp_linear(tape, a, w, NULL);
    case ADD:
        return fsdp_add(tape, a, b);
    case GELU:
        return fsdp_gelu_tanh(tape, a);
    case RELU:
        return fsdp_relu(tape, a);
    case NORM:
        return fsdp_layer_norm(tape, a, graph.weight[0], graph.weight[1], 1e-5);
    case DROPOUT:
        return fsdp_dropout(tape, a, 0.3, s->layer);
    default:
        return fsdp_reshape(tape, fsdp_reshape(tape, a, 2, turned), 2, back);
    }
}

static fsdp_values_t
run(void *context, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const program_t *p = context;
    fsdp_tensor_t *value[VALUES] = {inputs.tensor[0], inputs.tensor[1]};
    int have = 2;
    if (p->checkpointed && fsdp_tape_is_recomputing(tape))
        run_again++;
    for (int i = 0; i < STEPS; i++) {
        const step_t *s = &p->step[i];
        fsdp_tensor_t *a = value[s->a], *b = value[s->b];
        if (s->kind != SUB) {
            value[have++] = run_step(s, tape, a, b);
            continue;
        }
        fsdp_values_t out = call(s->sub, tape, fsdp_values2(a, b));
        value[have++] = out.tensor[0];
        value[have++] = out.tensor[1];
    }
    return fsdp_values2(value[p->output[0]], value[p->output[1]]);
}

/* Weights 0 and 1 scale and shift, the others are matrices; weight 4 is frozen
 * in every other graph. */
static void
make_weights(void)
{
    size_t shape[2] = {C, C};
    double value[C * C];
    for (uint32_t k = 0; k < WEIGHTS; k++) {
        fsdp_parameter_t *p = fsdp_parameter_create(
            "w", FSDP_FP32, k < 2 ? 1 : 2, shape, FSDP_INIT_ZEROS, 0, 0);
        for (size_t i = 0; i < C * C; i++)
            value[i] = 2 * twin_random(100 + graph.seed + k, i);
        nn_set_parameter(p, value);
        p->requires_grad = k < WEIGHTS - 1 || graph.seed % 2 == 0;
        graph.weight[k] = p;
    }
}

static void
make_graph(uint32_t seed)
{
    graph = (graph_t){.seed = seed};
    make_weights();
    graph.root = random_program(DEPTH);
    for (uint32_t k = 0; k < 2; k++)
        for (size_t i = 0; i < N * C; i++) {
            graph.weight_of_loss[k][i] = twin_random(seed + k, 1000 + i);
            graph.input[k][i] = twin_random(seed + k, 2000 + i);
        }
}

static void
free_graph(void)
{
    free_program(graph.root);
    for (int k = 0; k < WEIGHTS; k++)
        fsdp_parameter_destroy(&graph.weight[k]);
}

/* `probed`: do the inputs need a gradient?  `both`: does the loss depend on
 * both outputs?  A linear layer with a weight that is not frozen comes last, so
 * that there is a gradient. */
static void
forward_and_backward(bool probed, bool both)
{
    static const size_t shape[2] = {N, C};
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.seed = 5;
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_values_t in = {.count = 2};
    for (int k = 0; k < 2; k++) {
        in.tensor[k] = nn_tensor(tape, FSDP_FP32, 2, shape, graph.input[k]);
        if (probed)
            in.tensor[k] = nn_probe(tape, in.tensor[k], graph.input_grad[k]);
    }
    memset(graph.input_grad, 0, sizeof graph.input_grad);
    fsdp_values_t out = call(graph.root, tape, in);
    fsdp_tensor_t *loss = NULL;
    for (int k = 0; k < (both ? 2 : 1); k++) {
        fsdp_tensor_t *y =
            fsdp_linear(tape, out.tensor[k], graph.weight[2], NULL);
        y = nn_weighted_sum(tape, y, graph.weight_of_loss[k]);
        loss = loss == NULL ? y : fsdp_add(tape, loss, y);
    }
    graph.loss = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
}

/* The gradients by all weights; absent ones are told apart from zeros. */
typedef struct seen {
    double loss, input_grad[2][N * C];
    bool there[WEIGHTS];
    float grad[WEIGHTS][C * C];
} seen_t;

static seen_t
look(void)
{
    seen_t seen;
    memset(&seen, 0, sizeof seen);
    seen.loss = graph.loss;
    memcpy(seen.input_grad, graph.input_grad, sizeof seen.input_grad);
    for (int k = 0; k < WEIGHTS; k++) {
        fsdp_parameter_t *p = graph.weight[k];
        ck_assert_int_eq(p->awaited_uses, 0);
        ck_assert_ptr_null(p->incoming);
        seen.there[k] = p->grad != NULL;
        if (p->grad != NULL)
            memcpy(seen.grad[k], p->grad->data, fsdp_tensor_bytes(p->grad));
        fsdp_parameter_zero_grad(p);
    }
    return seen;
}

/* Checkpoints do run again, and most of the numbers are
 * numbers, and not zeros. */
START_TEST(same_bits_with_checkpoints)
{
    static const char text[2][4] = {"one", "two"};
    int twice = 0, numbers = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        make_graph(seed);
        for (int variant = 0; variant < 4; variant++) {
            bool probed = variant & 1, both = variant & 2;
            with_checkpoints = false;
            forward_and_backward(probed, both);
            seen_t expected = look();
            with_checkpoints = true;
            run_again = 0;
            forward_and_backward(probed, both);
            seen_t seen = look();
            twice += run_again;
            numbers += isfinite(seen.loss) && seen.loss != 0;
            ck_assert_msg(memcmp(&expected, &seen, sizeof seen) == 0,
                          "graph %u, inputs with%s gradients, %s outputs", seed,
                          probed ? "" : "out", text[both]);
        }
        free_graph();
    }
    ck_assert_int_gt(twice, 1000);
    ck_assert_int_gt(numbers, 600);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("checkpoint graphs");
    TCase *tcase = tcase_create("graphs");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, same_bits_with_checkpoints);
    return mck_run(argc, argv, suite);
}
