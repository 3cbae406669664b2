/* A plan for people. */
#include <inttypes.h>

#include "cli/plan.h"

/* ---- ZeRO's table -------------------------------------------------------- */

/* Mixed precision with Adam: 2 bytes of parameter, 2 of gradient, 12 of float32
 * parameter and its two moments (Rajbhandari et al. 2020, table 1). */
double
plan_zero_bytes(int64_t numel, int stage, int64_t ranks)
{
    double n = (double)numel, w = (double)ranks;
    double params = 2 * n, grads = 2 * n, optimizer = 12 * n / w;
    return (stage >= 3 ? params / w : params) +
           (stage >= 2 ? grads / w : grads) + optimizer;
}

int64_t
plan_zero_ranks(int i)
{
    return i < 6 ? (int64_t)1 << (2 * i) : 0;
}

static void
print_zero(const plan_result_t *r)
{
    printf("\nZeRO, 16 bytes a parameter (2 + 2 + 12), GB of model state a "
           "rank:\n"
           "    ranks          stage 1       stage 2       stage 3\n");
    for (int i = 0; plan_zero_ranks(i) > 0; i++) {
        int64_t n = plan_zero_ranks(i);
        printf("    %5" PRId64 "     %12.4g  %12.4g  %12.4g\n", n,
               plan_zero_bytes(r->numel, 1, n) / 1e9,
               plan_zero_bytes(r->numel, 2, n) / 1e9,
               plan_zero_bytes(r->numel, 3, n) / 1e9);
    }
}

/* ---- what is planned ----------------------------------------------------- */

static const char *const model_name[] = {"gpt2", "llama", "mlp"};
static const char *const strategy_name[] = {
    "FSDP2",        "FULL_SHARD",          "SHARD_GRAD_OP", "NO_SHARD",
    "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "ZeRO-1",        "ZeRO-2",
};
static const char *const accumulation_name[] = {
    ", each reduced", ", reduced with the last", ", all-reduced with the last"};

static void
print_reshard(const plan_config_t *c)
{
    if (c->strategy != PLAN_FSDP2)
        return;
    if (c->reshard > 0)
        printf(", reshard after forward to %d", c->reshard);
    else
        printf(", reshard after forward %s",
               c->reshard == FSDP_RESHARD_AUTO   ? "auto"
               : c->reshard == FSDP_RESHARD_TRUE ? "true"
                                                 : "false");
}

static void
print_head(const plan_result_t *r)
{
    const plan_config_t *c = &r->config;
    printf("plan: %s of %" PRId64 " parameters in %d units, %s",
           model_name[c->model], r->numel, r->num_units,
           fsdp_dtype_name(c->dtype));
    if (c->param_dtype != FSDP_DTYPE_NONE)
        printf(", computed in %s", fsdp_dtype_name(c->param_dtype));
    if (c->reduce_dtype != FSDP_DTYPE_NONE)
        printf(", reduced in %s", fsdp_dtype_name(c->reduce_dtype));
    printf("\n      %s on %d x %d ranks", strategy_name[c->strategy],
           c->replicas, c->shard);
    if (c->tp > 1)
        printf(", each %d of tensor parallelism", c->tp);
    print_reshard(c);
    printf("\n      a step of a rank: %d x %" PRId64 " %s", c->micros, c->batch,
           c->model != PLAN_MLP ? "sequences" : "rows");
    if (c->micros > 1)
        printf("%s", accumulation_name[c->accumulation]);
    printf(c->checkpoint ? "; activation checkpoints" : "");
    printf(c->offload ? "; offloaded to files" : "");
    printf("\n");
}

/* ---- memory -------------------------------------------------------------- */

static const char *
category_name(int c)
{
    return c == PLAN_ALL ? "sum"
                         : fsdp_memory_category_name((fsdp_memory_category_t)c);
}

static void
print_memory(const plan_result_t *r, const plan_rank_t *rank)
{
    char title[64];
    snprintf(title, sizeof title, "bytes of rank %d%s", rank->rank,
             r->num_ranks == 1 && r->ranks > 1 ? ", the most" : "");
    printf("\n%-26s %16s %15s %18s%s\n", title, "between steps", "peak, step",
           "peak, evaluation", r->config.offload ? "        in files" : "");
    for (int c = 0; c <= PLAN_ALL; c++) {
        if (c == FSDP_MEM_BASELINE)
            continue;
        printf("    %-22s %16" PRId64 " %15" PRId64 " %18" PRId64,
               category_name(c), rank->steady[c], rank->step[c],
               rank->evaluation[c]);
        if (r->config.offload)
            printf(" %15" PRId64, rank->files[c]);
        printf("\n");
    }
}

static int64_t
most(const plan_rank_t *rank)
{
    int64_t step = rank->step[PLAN_ALL], other = rank->evaluation[PLAN_ALL];
    return step > other ? step : other;
}

static void
print_fit(const plan_result_t *r)
{
    const double gib = (double)(1 << 30);
    int64_t need = most(&r->rank[0]);
    if (r->memory == 0)
        return;
    if (need <= r->memory)
        printf("\nfits: %.4g of %.4g GiB a rank, %.1f %%\n", (double)need / gib,
               (double)r->memory / gib,
               100.0 * (double)need / (double)r->memory);
    else
        printf("\ndoes not fit: %.4g GiB a rank are needed, %.4g are allowed; "
               "try more ranks, --activation-checkpointing, a smaller "
               "--micro-batch-size, --param-dtype bfloat16 or --offload\n",
               (double)need / gib, (double)r->memory / gib);
}

/* ---- collectives --------------------------------------------------------- */

static void
print_collectives(const plan_result_t *r)
{
    if (r->ranks == 1) {
        printf("\none rank: no collectives\n");
        return;
    }
    printf("\n%-26s %12s %20s %20s %12s\n", "collectives of rank 0",
           "calls, step", "bytes sent", "calls, evaluation", "bytes sent");
    for (int k = 0; k < FSDP_COLLECTIVE_COUNT; k++)
        if (r->run.calls[k] > 0)
            printf("    %-22s %12" PRId64 " %20" PRId64 " %20" PRId64
                   " %12" PRId64 "\n",
                   fsdp_collective_name((fsdp_collective_t)k), r->step.calls[k],
                   r->step.bytes[k], r->evaluation.calls[k],
                   r->evaluation.bytes[k]);
}

/* The table has a router that deals evenly. */
static void
print_loads(const plan_result_t *r)
{
    if (r->config.expert_parts > 1)
        printf("\nThe experts of each rank get as many rows as it sends here.  "
               "Wherever the tokens go,\na rank needs at most %" PRId64
               " bytes and sends %" PRId64 " by all_to_all in %ld steps\n"
               "(here %" PRId64 " and %" PRId64 ").\n",
               r->rank[0].most[PLAN_ALL], r->most_run.bytes[FSDP_ALL_TO_ALL],
               r->steps, most(&r->rank[0]), r->run.bytes[FSDP_ALL_TO_ALL]);
}

void
plan_print(const plan_result_t *r, bool verbose)
{
    print_head(r);
    for (int i = 0; i < (verbose ? r->num_ranks : 1); i++)
        print_memory(r, &r->rank[i]);
    if (verbose && r->num_ranks < r->ranks)
        printf("    (the other %d ranks are like the last of these)\n",
               r->ranks - r->num_ranks);
    print_collectives(r);
    print_loads(r);
    print_zero(r);
    print_fit(r);
    fflush(stdout);
}
