/* GPT-2 whose shards, gradients and optimizer states are in files, and whose
 * blocks are checkpointed: the same bits, and little of it resident. */
#include "mck.h"

#include <stdio.h>
#include <string.h>

#include "fsdp.h"

/* Three micro-batches, so that sums of gradients wait to be completed. */
enum { STEPS = 3, MICROS = 3, MAX_PARAMETERS = 300 };
enum { FORWARD, BACKWARD, CLIPPED, STEPPED, MOMENTS };

typedef struct kind {
    bool offloaded, checkpointed;
    int reshard;
    double dropout;
} kind_t;

typedef struct trainer {
    fsdp_module_t *model;
    fsdp_optimizer_t *optimizer;
    fsdp_parameter_t *parameter[MAX_PARAMETERS];
    size_t count;
    double norm[STEPS], loss[STEPS];
    size_t mapped[MOMENTS]; /* see most_resident() */
} trainer_t;

static size_t
status_of(const char *key)
{
    char line[256];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %zu", &kb);
    fclose(f);
    return kb * 1024;
}

/* Pages of files that are in this process now: beside the program's own those of
 * offloaded blocks. */
static size_t
mapped(void)
{
    return status_of("RssFile") + status_of("RssShmem");
}

static void
shard(fsdp_module_t *model, const kind_t *kind, fsdp_mesh_t *mesh)
{
    size_t layers = fsdp_gpt2_get_config(model)->n_layer;
    fsdp_options_t options = fsdp_options_default();
    options.mesh = mesh;
    options.reshard_after_forward = kind->reshard;
    if (kind->offloaded)
        options.offload_policy.directory = ".";
    for (size_t i = 0; i < layers; i++) {
        fsdp_module_t *block = fsdp_gpt2_block(model, (int)i);
        if (kind->checkpointed)
            ck_assert_int_eq(fsdp_checkpoint_wrapper(block), FSDP_OK);
        ck_assert_int_eq(fully_shard(block, &options), FSDP_OK);
    }
    ck_assert_int_eq(fully_shard(model, &options), FSDP_OK);
}

static trainer_t
open_trainer(fsdp_gpt2_config_t config, const kind_t *kind, fsdp_mesh_t *mesh)
{
    trainer_t t = {.model = fsdp_gpt2_create(&config)};
    fsdp_adamw_options_t adam = fsdp_adamw_options_default();
    shard(t.model, kind, mesh);
    t.optimizer = fsdp_adamw_create(t.model, &adam);
    t.count = fsdp_module_parameters(t.model, t.parameter, MAX_PARAMETERS);
    return t;
}

static void
close_trainer(trainer_t *t)
{
    fsdp_optimizer_destroy(&t->optimizer);
    fsdp_module_destroy(&t->model);
}

static fsdp_tensor_t *
loss_of(trainer_t *t, fsdp_tape_t *tape, uint32_t draw)
{
    const fsdp_gpt2_config_t *c = fsdp_gpt2_get_config(t->model);
    const size_t shape[2] = {2, c->n_positions};
    fsdp_tensor_t *xy[2];
    for (uint32_t k = 0; k < 2; k++) {
        xy[k] = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
        for (size_t i = 0; i < fsdp_tensor_numel(xy[k]); i++) {
            uint32_t word = fsdp_random_word(1, FSDP_RANDOM_TEST, draw, k, i);
            ((int32_t *)xy[k]->data)[i] = (int32_t)(word % c->vocab_size);
        }
    }
    return fsdp_gpt2_loss(tape, t->model, xy[0], xy[1]);
}

static void
train_step(trainer_t *t, int step)
{
    int rank = fsdp_comm_rank(fsdp_comm_world());
    for (int m = 0; m < MICROS; m++) {
        fsdp_tape_options_t options = fsdp_tape_options_default();
        options.step = (uint32_t)step;
        options.first_sample = (uint32_t)(2 * (MICROS * rank + m));
        fsdp_tape_t *tape = fsdp_tape_create(&options);
        fsdp_tensor_t *loss =
            loss_of(t, tape, (uint32_t)(100 * step + MICROS * rank + m));
        t->loss[step] += fsdp_tensor_get(loss, 0);
        t->mapped[FORWARD] = mapped();
        fsdp_backward(tape, loss);
        fsdp_tape_destroy(&tape);
        t->mapped[BACKWARD] = mapped();
    }
    ck_assert_int_eq(fsdp_clip_grad_norm(t->model, 0.5, &t->norm[step]),
                     FSDP_OK);
    t->mapped[CLIPPED] = mapped();
    fsdp_optimizer_step(t->optimizer);
    t->mapped[STEPPED] = mapped();
}

/* ---- bits ---------------------------------------------------------------- */

static bool
same_parameter(trainer_t *a, trainer_t *b, size_t p)
{
    fsdp_local_t x = fsdp_parameter_local(a->parameter[p]);
    fsdp_local_t y = fsdp_parameter_local(b->parameter[p]);
    size_t bytes = x.numel * fsdp_dtype_size(a->parameter[p]->dtype);
    bool same = x.numel == y.numel && x.grad != NULL && y.grad != NULL &&
                memcmp(x.data, y.data, bytes) == 0 &&
                memcmp(x.grad, y.grad, bytes) == 0;
    for (int s = 0; s < 2; s++)
        same = same &&
               memcmp(fsdp_optimizer_state(a->optimizer, a->parameter[p], s),
                      fsdp_optimizer_state(b->optimizer, b->parameter[p], s),
                      bytes) == 0;
    return same;
}

static void
same_run(trainer_t *a, trainer_t *b)
{
    for (int step = 0; step < STEPS; step++) {
        bool same = true;
        train_step(a, step);
        train_step(b, step);
        same = a->loss[step] == b->loss[step] && a->norm[step] == b->norm[step];
        for (size_t p = 0; p < a->count; p++)
            same = same && same_parameter(a, b, p);
        mck_assert(same);
        mck_assert(a->norm[step] > 0.5);
        if (step == 0)
            continue; /* the second step adds to the gradients of the first */
        fsdp_optimizer_zero_grad(a->optimizer);
        fsdp_optimizer_zero_grad(b->optimizer);
    }
}

/* Bytes in files of each category, [padded] of all parameters in float32. */
static void
check_offloaded(const trainer_t *t, bool gradients)
{
    size_t numel = 0;
    for (size_t p = 0; p < t->count; p++)
        numel += fsdp_parameter_local(t->parameter[p]).padded_numel;
    mck_assert(fsdp_offload_live_bytes(FSDP_MEM_PARAM_SHARD) == 4 * numel);
    mck_assert(fsdp_offload_live_bytes(FSDP_MEM_OPTIMIZER) == 8 * numel);
    mck_assert(fsdp_offload_live_bytes(FSDP_MEM_GRAD_SHARD) ==
               (gradients ? 4 * numel : 0));
    mck_assert(fsdp_offload_live_bytes_all() == (gradients ? 16 : 12) * numel);
}

START_TEST(same_bits_as_in_memory)
{
    static const kind_t kinds[] = {
        {true, false, FSDP_RESHARD_AUTO, 0},
        {false, true, FSDP_RESHARD_AUTO, 0.2},
        {true, true, FSDP_RESHARD_AUTO, 0.2},
        {true, true, FSDP_RESHARD_FALSE, 0},
    };
    fsdp_gpt2_config_t config = {.n_layer = 3,
                                 .n_head = 2,
                                 .n_embd = 12,
                                 .vocab_size = 23,
                                 .n_positions = 7,
                                 .tie_word_embeddings = true,
                                 .seed = 4};
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        kind_t plain = {.reshard = FSDP_RESHARD_AUTO};
        config.resid_pdrop = config.attn_pdrop = kinds[k].dropout;
        /* More than a piece of the embedding on each of two ranks. */
        bool large = k == 0 && fsdp_comm_size(fsdp_comm_world()) <= 2;
        config.vocab_size = large ? 180001 : 23;
        trainer_t a = open_trainer(config, &plain, mesh);
        trainer_t b = open_trainer(config, &kinds[k], mesh);
        same_run(&a, &b);
        if (kinds[k].offloaded)
            check_offloaded(&b, false);
        close_trainer(&a);
        close_trainer(&b);
        mck_assert(fsdp_offload_live_bytes_all() == 0);
    }
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- resident memory ----------------------------------------------------- */

/* Its freed blocks stay for a while. */
static bool
has_sanitizer(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return true;
#else
    return false;
#endif
}

static bool
reset_high_water(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool done = f != NULL && fputs("5", f) >= 0;
    return f != NULL && fclose(f) == 0 && done;
}

/* What two steps add to this process at the most; `most_mapped`: to the pages of
 * files, at the moments between the parts of a step. */
static size_t
most_resident(bool offloaded, fsdp_mesh_t *mesh, size_t *most_mapped)
{
    fsdp_gpt2_config_t config = {.n_layer = 20,
                                 .n_head = 4,
                                 .n_embd = 256,
                                 .vocab_size = 256,
                                 .n_positions = 8,
                                 .tie_word_embeddings = true};
    kind_t kind = {offloaded, true, FSDP_RESHARD_AUTO, 0};
    fsdp_memory_trim();
    size_t before = status_of("VmRSS"), mapped_before = mapped();
    *most_mapped = 0;
    if (!reset_high_water())
        return 0;
    trainer_t t = open_trainer(config, &kind, mesh);
    for (int step = 0; step < 2; step++) {
        train_step(&t, step);
        for (int moment = 0; moment < MOMENTS; moment++)
            if (t.mapped[moment] - mapped_before > *most_mapped)
                *most_mapped = t.mapped[moment] - mapped_before;
        if (offloaded)
            check_offloaded(&t, true);
        fsdp_optimizer_zero_grad(t.optimizer);
    }
    size_t most = status_of("VmHWM");
    close_trainer(&t);
    return most - before;
}

/* With U the bytes of a block: two are gathered (one ahead), with their buffers
 * 4 U; a gradient and its copies on the way, of which two may be in flight,
 * 4 U; activations are small here.  Then the optimizer's pieces of four vectors,
 * here at most a parameter's 1 MB each, and what the system maps around a page
 * that is touched, 2 MiB at most for each.
 * The states are 16 bytes x parameters / ranks, some 80 U / W. */
START_TEST(resident_memory_is_bounded)
{
    enum { AROUND = 2 << 20 };
    size_t block = 4 * (12 * 256 * 256 + 13 * 256);
    size_t bound = 8 * block + 4 * AROUND, mapped_offloaded, mapped_else;
    if (fsdp_comm_size(fsdp_comm_world()) > 2 || has_sanitizer())
        return;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    size_t offloaded = most_resident(true, mesh, &mapped_offloaded);
    size_t in_memory = most_resident(false, mesh, &mapped_else);
    mck_assert(offloaded <= bound);
    mck_assert(in_memory == 0 || in_memory > 2 * bound); /* that is little */
    mck_assert(mapped_offloaded <= AROUND);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("offload");
    TCase *tcase = tcase_create("gpt2");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, same_bits_as_in_memory);
    tcase_add_test(tcase, resident_memory_is_bounded);
    return mck_run(argc, argv, suite);
}
