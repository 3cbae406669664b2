/* What a step of GPT-2 costs: collectives, their bytes, and the memory of
 * gathered parameters, by the formulas of fsdp-semantics.md section 6.
 *
 * With L blocks, W ranks and a padded shard of B bytes of a block and R of the
 * root, which has the embeddings, the last norm and, tied, the head:
 *
 *      all-gathers      L + 1 forward; backward L (AUTO), L + 1 (TRUE), 0 (FALSE)
 *      reduce-scatters  L + 1
 *      bytes sent       W - 1 shards for each of them: with Psi = W (L B + R)
 *                       bytes of all, per rank (W - 1) / W of
 *                       3 Psi (TRUE), 3 Psi - W R (AUTO), 2 Psi (FALSE)
 *      gathered at once W (R + B), or W (R + L B) (FALSE)
 *
 * One rank communicates nothing. */
#include "fsdp.h"
#include "mck.h"

enum { LAYERS = 3, WIDTH = 6, VOCABULARY = 11, POSITIONS = 7, ROWS = 2 };

/* Bytes of this rank's part of [rows, columns] float32, padded. */
static size_t
shard_bytes(size_t rows, size_t columns)
{
    size_t size = (size_t)fsdp_comm_size(fsdp_comm_world());
    return (rows + size - 1) / size * columns * sizeof(float);
}

/* The shapes are Hugging Face's; a vector has one column. */
static size_t
block_bytes(void)
{
    size_t c = WIDTH;
    size_t norms = 2 * 2 * shard_bytes(c, 1);
    size_t attention = shard_bytes(c, 3 * c) + shard_bytes(3 * c, 1) +
                       shard_bytes(c, c) + shard_bytes(c, 1);
    size_t mlp = shard_bytes(c, 4 * c) + shard_bytes(4 * c, 1) +
                 shard_bytes(4 * c, c) + shard_bytes(c, 1);
    return norms + attention + mlp;
}

static size_t
root_bytes(bool tied)
{
    size_t table = shard_bytes(VOCABULARY, WIDTH);
    return table + shard_bytes(POSITIONS, WIDTH) + 2 * shard_bytes(WIDTH, 1) +
           (tied ? 0 : table);
}

typedef struct cost {
    fsdp_comm_counter_t gathers, reductions;
    size_t peak;
} cost_t;

static void
run_step(fsdp_module_t *gpt2)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *tokens =
        fsdp_tape_new_tensor(tape, FSDP_INT32, 2, (size_t[]){ROWS, POSITIONS});
    for (size_t i = 0; i < ROWS * POSITIONS; i++)
        fsdp_tensor_set(tokens, i, (double)(i * 5 % VOCABULARY));
    fsdp_backward(tape, fsdp_gpt2_loss(tape, gpt2, tokens, tokens));
    fsdp_tape_destroy(&tape);
}

static cost_t
cost_of_step(int reshard, bool tied)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = LAYERS;
    config.n_head = 2;
    config.n_embd = WIDTH;
    config.vocab_size = VOCABULARY;
    config.n_positions = POSITIONS;
    config.tie_word_embeddings = tied;
    fsdp_module_t *gpt2 = fsdp_gpt2_create(&config);
    fsdp_options_t options = fsdp_options_default();
    options.mesh = fsdp_mesh_create_1d();
    options.reshard_after_forward = reshard;
    for (int i = 0; i < LAYERS; i++)
        ck_assert(fully_shard(fsdp_gpt2_block(gpt2, i), &options) == FSDP_OK);
    ck_assert(fully_shard(gpt2, &options) == FSDP_OK);

    fsdp_comm_t *comm = fsdp_mesh_shard_comm(options.mesh);
    fsdp_comm_reset_counters(comm);
    fsdp_memory_reset_peaks();
    run_step(gpt2);
    cost_t cost = {fsdp_comm_counter(comm, FSDP_ALL_GATHER),
                   fsdp_comm_counter(comm, FSDP_REDUCE_SCATTER),
                   fsdp_memory_peak_bytes(FSDP_MEM_UNSHARDED_PARAM)};
    fsdp_module_destroy(&gpt2);
    fsdp_mesh_destroy(&options.mesh);
    return cost;
}

static const struct {
    int reshard;
    size_t blocks_twice, root_twice; /* gathered again for the backward */
} ways[] = {
    {FSDP_RESHARD_AUTO, 1, 0},
    {FSDP_RESHARD_TRUE, 1, 1},
    {FSDP_RESHARD_FALSE, 0, 0},
};
enum { WAYS = sizeof ways / sizeof *ways };

START_TEST(step_of_gpt2)
{
    int way = _i / 2;
    bool tied = _i % 2 == 0;
    size_t size = (size_t)fsdp_comm_size(fsdp_comm_world());
    size_t block = block_bytes(), root = root_bytes(tied);
    size_t blocks_twice = ways[way].blocks_twice;
    size_t root_twice = ways[way].root_twice;
    size_t all = LAYERS * block + root; /* Psi / W */
    size_t again = blocks_twice * LAYERS * block + root_twice * root;
    cost_t cost = cost_of_step(ways[way].reshard, tied);

    size_t calls = LAYERS + 1 + blocks_twice * LAYERS + root_twice;
    mck_assert(cost.gathers.calls == (size > 1 ? calls : 0));
    mck_assert(cost.reductions.calls == (size > 1 ? LAYERS + 1 : 0));
    mck_assert(cost.gathers.bytes_sent == (size - 1) * (all + again));
    mck_assert(cost.reductions.bytes_sent == (size - 1) * all);
    mck_assert(cost.peak ==
               size * (root + (blocks_twice ? 1 : LAYERS) * block));
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("costs");
    TCase *tcase = tcase_create("gpt2");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, step_of_gpt2, 0, 2 * WAYS);
    return mck_run(argc, argv, suite);
}
