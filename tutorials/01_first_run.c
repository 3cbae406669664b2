/* 01: a model of your own, sharded, trained, and proved right.
 *
 *     mpiexec -n 4 ./01_first_run
 *
 * Each rank keeps a quarter of every parameter.  At each step rank 0 also
 * trains the whole model, without sharding, and every number of the two runs
 * must be the same, to the last bit. */
#include <math.h>
#include <stdio.h>

#include "fsdp.h"

enum { STEPS = 20, BATCH = 16, WIDTH = 32, SEED = 1 };

/* The forward is written as for one process, from modules and operators. */
static fsdp_values_t
forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x =
        fsdp_module_call1(self->child[0], tape, inputs.tensor[0]);
    return fsdp_module_call(self->child[1], tape,
                            fsdp_values1(fsdp_gelu_tanh(tape, x)));
}

/* Names are full, as in a state dict.  No parameter has any memory yet. */
static fsdp_module_t *
build(void *unused)
{
    fsdp_module_t *net = fsdp_module_create("", "Net", forward, unused, 0);
    fsdp_module_add_child(
        net, fsdp_linear_create("first", 1, WIDTH, true, FSDP_FP32, SEED));
    fsdp_module_add_child(
        net, fsdp_linear_create("second", WIDTH, 1, true, FSDP_FP32, SEED));
    return net;
}

/* The data: points of a curve.  Micro-batch `micro` of a step is the same
 * numbers whoever asks for it. */
static fsdp_tensor_t *
loss_of(void *unused, fsdp_tape_t *tape, fsdp_module_t *net, long step,
        int micro)
{
    size_t shape[] = {BATCH, 1};
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, FSDP_FP32, 2, shape);
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_FP32, 2, shape);
    for (size_t i = 0; i < BATCH; i++) {
        uint32_t word = fsdp_random_word(SEED, FSDP_RANDOM_DATA,
                                         (uint32_t)micro, (uint64_t)step, i);
        fsdp_tensor_set(x, i, 2 * fsdp_random_uniform(word) - 1);
        fsdp_tensor_set(y, i, sin(3 * fsdp_tensor_get(x, i)));
    }
    (void)unused;
    return fsdp_mse_loss(tape, fsdp_module_call1(net, tape, x), y);
}

/* PyTorch's training loop, with what the verifier wants to see in between.
 * Each rank takes the micro-batch of its own number. */
static void
train_step(fsdp_module_t *net, fsdp_optimizer_t *optimizer,
           fsdp_verifier_t *verifier, long step)
{
    fsdp_comm_t *world = fsdp_comm_world();
    int rank = fsdp_comm_rank(world), size = fsdp_comm_size(world);
    double mine, losses[size], norm;

    fsdp_verifier_begin_step(verifier, step);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *loss = loss_of(NULL, tape, net, step, rank);
    fsdp_backward(tape, loss);
    mine = fsdp_tensor_get(loss, 0);
    fsdp_verifier_micro_batch(verifier, 0, mine);
    fsdp_tape_destroy(&tape);

    /* The loss to report is the mean over the ranks. */
    fsdp_all_gather(world, "loss", FSDP_FP64, &mine, losses, 1);
    double mean = fsdp_mean_loss(losses, size, FSDP_FP32, FSDP_ORDER_TREE);
    fsdp_verifier_gradients(verifier, mean);
    fsdp_clip_grad_norm(net, 1.0, &norm);
    fsdp_verifier_norm(verifier, norm);
    fsdp_optimizer_step(optimizer);
    fsdp_verifier_update(verifier, fsdp_optimizer_get_lr(optimizer));
    fsdp_optimizer_zero_grad(optimizer);

    fsdp_verify_report_t report = fsdp_verifier_end_step(verifier);
    if (rank == 0)
        printf("step %2ld  loss %.5f  %ju of %ju values differ\n", step, mean,
               (uintmax_t)report.differing, (uintmax_t)report.compared);
}

int
main(int argc, char **argv)
{
    fsdp_init(&argc, &argv);
    fsdp_module_t *net = build(NULL);

    /* Shard bottom-up, the root last: each call takes the parameters that no
     * call before it took, here the root those of the second layer. */
    fsdp_options_t shard = fsdp_options_default();
    shard.mesh = fsdp_mesh_create_1d();
    if (fully_shard(net->child[0], &shard) != FSDP_OK ||
        fully_shard(net, &shard) != FSDP_OK)
        fsdp_die(FSDP_EXIT_USAGE, "%s", fsdp_error_message());

    /* An optimizer sees this rank's rows only: make it after sharding.  The
     * verifier builds the whole model by itself, from the same task. */
    fsdp_adamw_options_t adamw = fsdp_adamw_options_default();
    adamw.lr = 0.02;
    fsdp_optimizer_t *optimizer = fsdp_adamw_create(net, &adamw);
    fsdp_verifier_t *verifier = fsdp_verifier_create(
        &(fsdp_verify_options_t){.level = FSDP_VERIFY_PHASE,
                                 .task = {.build = build, .loss = loss_of},
                                 .model = net,
                                 .optimizer = optimizer,
                                 .mesh = shard.mesh,
                                 .micro_batches = 1,
                                 .clip_norm = 1.0,
                                 .adamw = true,
                                 .adam = adamw});
    for (long step = 1; step <= STEPS; step++)
        train_step(net, optimizer, verifier, step);
    uint64_t differing = fsdp_verifier_total(verifier).differing;

    fsdp_verifier_destroy(&verifier);
    fsdp_optimizer_destroy(&optimizer);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&shard.mesh);
    fsdp_finalize();
    return differing == 0 ? 0 : 1;
}
