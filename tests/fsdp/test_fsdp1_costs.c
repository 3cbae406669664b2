/* FSDP1 and the stages of ZeRO: calls, bytes and memory against formulas, for
 * uneven units. */
/* Ranks: 1 2 3 4 5 */
#include <string.h>

#include "fsdp.h"
#include "mck.h"
#include "net.h"

static const net_config_t config = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

enum { LAYERS = 3, UNITS = 4 /* the last one is the root */ };

static size_t
world_size(void)
{
    return (size_t)fsdp_comm_size(fsdp_comm_world());
}

/* Elements of each unit's parameters, and of its chunk. */
typedef struct sizes {
    size_t numel[UNITS], chunk[UNITS];
    size_t chunks, padded, root_chunk, largest; /* of the layers: padded */
} sizes_t;

static size_t
numel_below(fsdp_module_t *module)
{
    return fsdp_module_num_elements(module);
}

static sizes_t
sizes_of(fsdp_module_t *net)
{
    sizes_t s = {0};
    size_t w = world_size();
    s.numel[LAYERS] = numel_below(net);
    for (int i = 0; i < LAYERS; i++) {
        s.numel[i] = numel_below(net_layer(net, i));
        s.numel[LAYERS] -= s.numel[i];
    }
    for (int i = 0; i < UNITS; i++) {
        s.chunk[i] = (s.numel[i] + w - 1) / w;
        s.chunks += s.chunk[i];
        if (i < LAYERS && s.chunk[i] * w > s.largest)
            s.largest = s.chunk[i] * w;
    }
    s.padded = s.chunks * w;
    s.root_chunk = s.chunk[LAYERS];
    return s;
}

static fsdp_module_t *
wrapped(fsdp_mesh_t *mesh, int stage, fsdp_sharding_strategy_t strategy,
        fsdp_dtype_t param_dtype)
{
    fsdp_module_t *net = net_create(&config);
    fsdp1_options_t o = fsdp1_options_default();
    o.mesh = mesh;
    o.sharding_strategy = strategy;
    o.mixed_precision.param_dtype = param_dtype;
    for (int i = 0; i < UNITS; i++) {
        fsdp_module_t *unit = i < LAYERS ? net_layer(net, i) : net;
        ck_assert((stage < 0 ? fsdp_fully_sharded_data_parallel(unit, &o)
                             : fsdp_zero(unit, (fsdp_zero_stage_t)stage, &o)) ==
                  FSDP_OK);
    }
    return net;
}

static void
run(fsdp_module_t *net)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = net_batch(net, tape, NET_BATCH, 0);
    fsdp_backward(tape, net_loss(net, tape, x));
    fsdp_tape_destroy(&tape);
}

static bool
counts(fsdp_mesh_t *mesh, fsdp_collective_t kind, size_t calls, size_t bytes)
{
    fsdp_comm_counter_t c = fsdp_mesh_counter(mesh, kind);
    if (world_size() == 1)
        return c.calls == 0 && c.bytes_sent == 0;
    return c.calls == calls && c.bytes_sent == bytes;
}

/* What one rank sends in an all-reduce of n elements over W: its W - 1 parts of
 * other ranks' chunks, then its chunk W - 1 times; chunks of ceil(n / W). */
static size_t
all_reduce_elements(size_t n)
{
    size_t w = world_size(), c = (n + w - 1) / w;
    size_t rank = (size_t)fsdp_comm_rank(fsdp_comm_world());
    size_t begin = rank * c < n ? rank * c : n;
    size_t mine = begin + c < n ? c : n - begin;
    return n - mine + (w - 1) * mine;
}

/* ---- calls and bytes ----------------------------------------------------- */

/* FULL_SHARD gathers each unit in the forward and, but for the root, in the
 * backward; SHARD_GRAD_OP once. */
START_TEST(traffic_of_strategies)
{
    bool full = _i == 0;
    size_t others = world_size() - 1;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_dtype_t low = _i == 2 ? FSDP_BF16 : FSDP_DTYPE_NONE;
    fsdp_module_t *net =
        wrapped(mesh, -1, full ? FSDP_FULL_SHARD : FSDP_SHARD_GRAD_OP, low);
    sizes_t s = sizes_of(net);
    size_t size = _i == 2 ? 2 : 4; /* 16-bit parameters send half */
    for (int step = 0; step < 2; step++) {
        fsdp_mesh_reset_counters(mesh);
        run(net);
        size_t gathered = full ? 2 * s.chunks - s.root_chunk : s.chunks;
        mck_assert(counts(mesh, FSDP_ALL_GATHER, full ? 7 : 4,
                          others * gathered * size));
        mck_assert(
            counts(mesh, FSDP_REDUCE_SCATTER, 4, others * s.chunks * size));
        mck_assert(counts(mesh, FSDP_ALL_REDUCE, 0, 0));
    }
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* fsdp-semantics.md 6: DDP and ZeRO-1, 2 send 2 Psi (W - 1) / W, ZeRO-3 3 Psi
 * (the root's second gather less); exactly, with the units' padding. */
START_TEST(traffic_of_zero)
{
    size_t others = world_size() - 1, reduced = 0;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = wrapped(mesh, _i, FSDP_FULL_SHARD, FSDP_DTYPE_NONE);
    sizes_t s = sizes_of(net);
    for (int i = 0; i < UNITS; i++)
        reduced += all_reduce_elements(s.numel[i]);
    for (int step = 0; step < 2; step++) {
        fsdp_mesh_reset_counters(mesh);
        run(net);
        fsdp_zero_gather_parameters(net);
        bool ddp = _i == FSDP_DDP;
        size_t gathers[] = {0, 4, 4, 7};
        size_t gathered[] = {0, s.chunks, s.chunks,
                             2 * s.chunks - s.root_chunk};
        mck_assert(counts(mesh, FSDP_ALL_GATHER, gathers[_i],
                          others * gathered[_i] * 4));
        mck_assert(counts(mesh, FSDP_REDUCE_SCATTER, ddp ? 0 : 4,
                          ddp ? 0 : others * s.chunks * 4));
        mck_assert(
            counts(mesh, FSDP_ALL_REDUCE, ddp ? 4 : 0, ddp ? reduced * 4 : 0));
    }
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* ---- memory -------------------------------------------------------------- */

/* The table of the ZeRO paper for float32 and AdamW, with padding; padding has
 * no optimizer state. */
START_TEST(memory_of_zero)
{
    size_t w = world_size();
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = wrapped(mesh, _i, FSDP_FULL_SHARD, FSDP_DTYPE_NONE);
    sizes_t s = sizes_of(net);
    fsdp_adamw_options_t o = fsdp_adamw_options_default();
    fsdp_optimizer_t *adamw = fsdp_adamw_create(net, &o);
    run(net);
    fsdp_optimizer_step(adamw);
    fsdp_zero_gather_parameters(net);
    size_t all = numel_below(net);
    size_t params[] = {all, s.padded, s.padded, s.chunks};
    size_t grads[] = {all, s.padded, s.chunks, s.chunks};
    int stage = w == 1 ? FSDP_DDP : _i;
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_PARAM_SHARD) ==
               4 * params[stage]);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_GRAD_SHARD) == 4 * grads[stage]);
    double state = (double)fsdp_memory_live_bytes(FSDP_MEM_OPTIMIZER);
    mck_assert(state <= 8.0 * (double)(stage == FSDP_DDP ? all : s.chunks));
    fsdp_all_reduce(fsdp_comm_world(), "test", FSDP_FP64, FSDP_SUM,
                    FSDP_ORDER_TREE, &state, 1);
    mck_assert(state == 8.0 * (double)(all * (stage == FSDP_DDP ? w : 1)));
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_PARAM) == 0);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_UNSHARDED_GRAD) == 0);
    mck_assert(fsdp_memory_live_bytes(FSDP_MEM_COMM) == 0);
    fsdp_optimizer_destroy(&adamw);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* Gathered at most: the root and all layers (SHARD_GRAD_OP), or the root, the
 * unit that runs and the one that is prefetched. */
START_TEST(peak_of_gathered_parameters)
{
    bool full = _i == 0;
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = wrapped(
        mesh, -1, full ? FSDP_FULL_SHARD : FSDP_SHARD_GRAD_OP, FSDP_DTYPE_NONE);
    sizes_t s = sizes_of(net);
    size_t w = world_size(), pairs = 0;
    for (int i = 0; i + 1 < LAYERS; i++)
        if (s.chunk[i] + s.chunk[i + 1] > pairs)
            pairs = s.chunk[i] + s.chunk[i + 1];
    size_t want = w * (full ? s.root_chunk + pairs : s.chunks);
    fsdp_memory_reset_peaks();
    run(net);
    mck_assert(fsdp_memory_peak_bytes(FSDP_MEM_UNSHARDED_PARAM) ==
               (w == 1 ? 0 : 4 * want));
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

/* No rank ever makes more than its chunks. */
START_TEST(wrapping_makes_no_whole)
{
    fsdp_memory_reset_peaks();
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = wrapped(mesh, -1, FSDP_FULL_SHARD, FSDP_DTYPE_NONE);
    sizes_t s = sizes_of(net);
    mck_assert(fsdp_memory_peak_bytes(FSDP_MEM_PARAM_SHARD) == 4 * s.chunks);
    mck_assert(fsdp_memory_peak_bytes(FSDP_MEM_UNSHARDED_PARAM) == 0);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

START_TEST(steady_state_asks_the_system_for_nothing)
{
#ifdef __SANITIZE_ADDRESS__
    return; /* no pool there, so that use after free is seen */
#endif
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    fsdp_module_t *net = wrapped(mesh, -1, FSDP_FULL_SHARD, FSDP_DTYPE_NONE);
    fsdp_sgd_options_t o = fsdp_sgd_options_default();
    fsdp_optimizer_t *sgd = fsdp_sgd_create(net, &o);
    long before = 0;
    for (int step = 0; step < 6; step++) {
        if (step == 2)
            before = fsdp_memory_system_requests();
        run(net);
        fsdp_optimizer_step(sgd);
        fsdp_optimizer_zero_grad(sgd);
    }
    mck_assert(fsdp_memory_system_requests() == before);
    fsdp_optimizer_destroy(&sgd);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("fsdp1_costs");
    TCase *tcase = tcase_create("formulas");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, traffic_of_strategies, 0, 3);
    tcase_add_loop_test(tcase, traffic_of_zero, 0, 4);
    tcase_add_loop_test(tcase, memory_of_zero, 0, 4);
    tcase_add_loop_test(tcase, peak_of_gathered_parameters, 0, 2);
    tcase_add_test(tcase, wrapping_makes_no_whole);
    tcase_add_test(tcase, steady_state_asks_the_system_for_nothing);
    return mck_run(argc, argv, suite);
}
