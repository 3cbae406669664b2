/* Mesh and reduction as the trace's run had them. */

#include <math.h>
#include <string.h>

#include "cli/replay_fill.h"

/* The ranks are those of the trace: the mesh too.  Else all of them share. */
static void
fill_mesh(cli_options_t *o, cli_replay_t *replay, int ranks)
{
    const fsdp_trace_about_t *a = replay->source.about;
    bool same = ranks == replay->source.ranks && a->replicas > 1;
    if (!cli_is_given(o, "api") && !cli_is_given(o, "strategy") &&
        a->api != NULL && strcmp(a->api, "fsdp1") == 0)
        o->api = CLI_FSDP1;
    if (o->mesh == NULL && same && o->strategy == 0) {
        snprintf(replay->mesh, sizeof replay->mesh, "%dx%d", a->replicas,
                 a->shards);
        o->mesh = replay->mesh;
    }
    if (o->api == CLI_FSDP1 && !cli_is_given(o, "sharding-strategy") &&
        o->mesh != NULL && strchr(o->mesh, 'x') != NULL)
        o->sharding_strategy = FSDP_HYBRID_SHARD;
}

static void
fill_reduction(cli_options_t *o, cli_replay_t *replay, int ranks)
{
    const trace_source_t *s = &replay->source;
    const fsdp_trace_about_t *a = s->about;
    bool replicas = o->mesh != NULL && strchr(o->mesh, 'x') != NULL;
    if (!cli_is_given(o, "gradient-sync") && a->gradient_sync >= 0)
        o->gradient_sync = a->gradient_sync;
    if (!cli_is_given(o, "gradient-sync") && !replicas &&
        o->gradient_sync == FSDP_SYNC_LAST_ALL_REDUCE)
        o->gradient_sync = FSDP_SYNC_LAST;
    if (!cli_is_given(o, "reduce-order") && a->reduce_order >= 0)
        o->reduce_order = a->reduce_order;
    if (!cli_is_given(o, "averaging") && a->averaging >= 0 && !cli_is_fsdp1(o))
        o->averaging = a->averaging;
    if (!cli_is_given(o, "force-sum") && !cli_is_fsdp1(o))
        o->force_sum = a->force_sum;
    cli_replay_say_taken(o, a->gradient_sync < 0 && s->micros > s->ranks,
                         "gradient-sync", "each");
    cli_replay_say_taken(o, a->reduce_order < 0, "reduce-order", "tree");
    cli_replay_say_taken(o, a->averaging < 0 && !cli_is_fsdp1(o), "averaging",
                         "sum-then-divide");
    if (cli_is_given(o, "divide-factor"))
        return;
    /* The mean over the trace's ranks, whoever adds up here. */
    snprintf(replay->divide, sizeof replay->divide, "%.17g",
             isnan(a->divide_factor) ? s->ranks : a->divide_factor);
    if (isnan(a->divide_factor) && ranks == s->ranks)
        strcpy(replay->divide, "default");
    o->divide_factor = replay->divide;
}

static fsdp_status_t
check_ranks(const trace_source_t *s, int ranks)
{
    if (s->micros % ranks == 0)
        return FSDP_OK;
    int fewer = ranks < s->micros ? ranks : s->micros;
    while (s->micros % fewer != 0)
        fewer--;
    return fsdp_error(FSDP_ERR_USAGE,
                      "the %d micro-batches of the trace cannot be dealt "
                      "evenly to %d rank%s; start %d",
                      s->micros, ranks, ranks > 1 ? "s" : "", fewer);
}

fsdp_status_t
cli_replay_fill_sharding(cli_options_t *o, cli_replay_t *replay)
{
    const trace_source_t *s = &replay->source;
    int size = fsdp_comm_size(fsdp_comm_world());
    if (!cli_is_given(o, "tp") && s->about->tensor > 1 &&
        size % s->about->tensor == 0)
        o->tp = s->about->tensor;
    int ranks = size % o->tp == 0 ? size / (int)o->tp : size;
    fill_mesh(o, replay, ranks);
    fill_reduction(o, replay, ranks);
    return check_ranks(s, ranks);
}
