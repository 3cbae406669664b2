/* Trains a GPT-2 from files: offload_large DIRECTORY LAYERS WIDTH STEPS.  Each
 * rank prints what it has in files and its peak resident memory, in bytes, after
 * each step.  Not a test itself: see tests/cli/offload-large.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp.h"

enum { CONTEXT = 32, VOCABULARY = 256 };

static size_t
high_water(void)
{
    char line[256];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            sscanf(line + 6, "%zu", &kb);
    if (f != NULL)
        fclose(f);
    return kb * 1024;
}

static void
check(fsdp_status_t status)
{
    status = fsdp_comm_agree(fsdp_comm_world(), status);
    if (status != FSDP_OK)
        fsdp_die(fsdp_status_exit_code(status), "%s", fsdp_error_message());
}

static fsdp_module_t *
sharded_model(char **argv, fsdp_mesh_t *mesh)
{
    fsdp_gpt2_config_t config = {.n_layer = strtoul(argv[2], NULL, 10),
                                 .n_embd = strtoul(argv[3], NULL, 10),
                                 .vocab_size = VOCABULARY,
                                 .n_positions = CONTEXT,
                                 .tie_word_embeddings = true};
    config.n_head = config.n_embd / 64;
    fsdp_module_t *model = fsdp_gpt2_create(&config);
    fsdp_options_t options = fsdp_options_default();
    options.mesh = mesh;
    options.offload_policy.directory = argv[1];
    for (size_t i = 0; i < config.n_layer; i++) {
        check(fsdp_checkpoint_wrapper(fsdp_gpt2_block(model, (int)i)));
        check(fully_shard(fsdp_gpt2_block(model, (int)i), &options));
    }
    check(fully_shard(model, &options));
    return model;
}

/* Text that can be learned: each token is the one before plus three. */
static double
forward_backward(fsdp_module_t *model, int step)
{
    int rank = fsdp_comm_rank(fsdp_comm_world());
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    const size_t shape[2] = {1, CONTEXT};
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    for (int t = 0; t < CONTEXT; t++) {
        int token = 17 * step + 5 * rank + 3 * t;
        ((int32_t *)x->data)[t] = token % VOCABULARY;
        ((int32_t *)y->data)[t] = (token + 3) % VOCABULARY;
    }
    fsdp_tensor_t *loss = fsdp_gpt2_loss(tape, model, x, y);
    double value = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    return value;
}

static void
train(fsdp_module_t *model, int steps)
{
    fsdp_adamw_options_t adam = fsdp_adamw_options_default();
    fsdp_optimizer_t *adamw = fsdp_adamw_create(model, &adam);
    double norm;
    for (int step = 1; step <= steps; step++) {
        double start = fsdp_clock_seconds();
        double loss = forward_backward(model, step);
        check(fsdp_clip_grad_norm(model, 1.0, &norm));
        fsdp_optimizer_step(adamw);
        printf("step %d rank %d loss %.4f norm %.4f seconds %.1f "
               "offloaded %zu resident %zu\n",
               step, fsdp_comm_rank(fsdp_comm_world()), loss, norm,
               fsdp_clock_seconds() - start, fsdp_offload_live_bytes_all(),
               high_water());
        fflush(stdout);
        fsdp_optimizer_zero_grad(adamw);
    }
    fsdp_optimizer_destroy(&adamw);
}

int
main(int argc, char **argv)
{
    fsdp_init(&argc, &argv);
    if (argc != 5)
        fsdp_die(FSDP_EXIT_USAGE,
                 "usage: offload_large DIRECTORY LAYERS WIDTH STEPS");
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *model = sharded_model(argv, mesh);
    if (fsdp_comm_rank(fsdp_comm_world()) == 0)
        printf("parameters %zu\n", fsdp_module_num_elements(model));
    train(model, atoi(argv[4]));
    fsdp_module_destroy(&model);
    fsdp_mesh_destroy(&mesh);
    fsdp_finalize();
    return 0;
}
