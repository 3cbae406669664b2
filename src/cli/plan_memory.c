/* Bytes and calls. */
#include "cli/plan_sim.h"

static void
count(plan_memory_t *m, int which, int64_t bytes)
{
    m->live[which] += bytes;
    if (m->live[which] > m->peak[which])
        m->peak[which] = m->live[which];
}

static void
change(plan_memory_t *m, fsdp_memory_category_t category, int64_t bytes)
{
    count(m, (int)category, bytes);
    count(m, PLAN_ALL, bytes);
    if (category != FSDP_MEM_OTHER)
        count(m, PLAN_TENSORS, bytes);
    FSDP_CHECK(m->live[category] >= 0, "plan: more %s freed than there was",
               fsdp_memory_category_name(category));
}

void
plan_add(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes)
{
    change(&sim->memory, category, bytes);
}

void
plan_drop(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes)
{
    change(&sim->memory, category, -bytes);
}

void
plan_touch(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes)
{
    plan_add(sim, category, bytes);
    plan_drop(sim, category, bytes);
}

void
plan_add_kept(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes)
{
    change(sim->config.offload ? &sim->files : &sim->memory, category, bytes);
}

void
plan_drop_kept(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes)
{
    plan_add_kept(sim, category, -bytes);
}

void
plan_reset_peaks(plan_sim_t *sim)
{
    for (int c = 0; c < PLAN_SUMS; c++) {
        sim->memory.peak[c] = sim->memory.live[c];
        sim->files.peak[c] = sim->files.live[c];
    }
}

/* ---- sums over micro-batches --------------------------------------------- */

static bool
is_kept(fsdp_memory_category_t category)
{
    return category == FSDP_MEM_GRAD_SHARD;
}

static void
drop_part(plan_sim_t *sim, plan_sum_t *sum, fsdp_memory_category_t category,
          int64_t bytes)
{
    sum->count--;
    if (is_kept(category))
        plan_drop_kept(sim, category, bytes);
    else
        plan_drop(sim, category, bytes);
}

/* The order tree is a binary counter: two sums of equally many terms become
 * one.  A sum that was read (level -1) is no longer one of those. */
void
plan_sum_add(plan_sim_t *sim, plan_sum_t *sum, fsdp_memory_category_t category,
             int64_t bytes)
{
    FSDP_CHECK(sum->count < 64, "plan: %d partial sums", sum->count);
    sum->level[sum->count++] = 0;
    if (sim->config.order != FSDP_ORDER_TREE) {
        if (sum->count == 2)
            drop_part(sim, sum, category, bytes);
        return;
    }
    while (sum->count >= 2 && sum->level[sum->count - 1] >= 0 &&
           sum->level[sum->count - 1] == sum->level[sum->count - 2]) {
        drop_part(sim, sum, category, bytes);
        sum->level[sum->count - 1]++;
    }
}

void
plan_sum_read(plan_sim_t *sim, plan_sum_t *sum, fsdp_memory_category_t category,
              int64_t bytes)
{
    while (sum->count > 1)
        drop_part(sim, sum, category, bytes);
    if (sum->count > 0)
        sum->level[0] = -1;
}

void
plan_sum_clear(plan_sim_t *sim, plan_sum_t *sum,
               fsdp_memory_category_t category, int64_t bytes)
{
    while (sum->count > 0)
        drop_part(sim, sum, category, bytes);
}

/* ---- blocks -------------------------------------------------------------- */

plan_block_t *
plan_block_new(plan_sim_t *sim, fsdp_memory_category_t category, int64_t bytes)
{
    plan_block_t *block = fsdp_alloc(FSDP_MEM_OTHER, sizeof *block);
    *block = (plan_block_t){category, bytes, 1};
    plan_add(sim, category, bytes);
    return block;
}

plan_block_t *
plan_block_share(plan_block_t *block)
{
    block->users++;
    return block;
}

void
plan_block_free(plan_sim_t *sim, plan_block_t *block)
{
    if (block == NULL || --block->users > 0)
        return;
    plan_drop(sim, block->category, block->bytes);
    fsdp_free(block);
}

/* ---- collectives --------------------------------------------------------- */

void
plan_call(plan_sim_t *sim, fsdp_collective_t kind, int64_t bytes)
{
    sim->calls.calls[kind]++;
    sim->calls.bytes[kind] += bytes;
}

/* An all-reduce is cut into a row of ceil(n / ranks) elements for each rank; the
 * last rows may be short. */
static int64_t
row_bytes(int64_t numel, int64_t size, int ranks, int rank)
{
    int64_t longest = (numel + ranks - 1) / ranks,
            left = numel - rank * longest;
    left = left > 0 ? left : 0;
    return (left < longest ? left : longest) * size;
}

/* Room for the row as all others have it. */
int64_t
plan_all_reduce_scratch(int64_t numel, int64_t size, int ranks, int rank)
{
    return ranks > 1 ? (ranks - 1) * row_bytes(numel, size, ranks, rank) : 0;
}

/* Everybody's row goes to its rank, then the sum of one's own to everybody. */
int64_t
plan_all_reduce_bytes(int64_t numel, int64_t size, int ranks, int rank)
{
    int64_t mine = row_bytes(numel, size, ranks, rank);
    return ranks > 1 ? numel * size - mine + (ranks - 1) * mine : 0;
}
