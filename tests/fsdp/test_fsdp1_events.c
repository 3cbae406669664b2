/* FSDP1: the order of unshards, reshards, reductions and post-backwards equals
 * what PyTorch 2.13 did on CPUs, scenario by scenario
 * (data/golden/fsdp1_events.json), and so do calls, sizes, padding and cuts.
 *
 * Differences that are meant:
 * - frozen_front: PyTorch computes gradients for frozen parameters of a unit with
 *   trainable ones (its flat parameter wants one), and so goes back through
 *   layer 0, whose input and parameters need none; ours does not gather it.
 * - with forward_prefetch, from the second forward on, a unit's post-backward
 *   comes where the backward passes its prefetch, as in PyTorch.
 * - the all-reduce over replicas is made when the next reduction starts, or at
 *   the end, not within the post-backward; the order among them is the same.
 * - an all-reduce over one rank does not happen. */
/* Ranks: 1 2 3 4 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fsdp.h"
#include "mck.h"
#include "net.h"

enum { MAX_EVENTS = 256 };

typedef struct seen_event {
    fsdp_event_kind_t kind;
    char unit[48];
    fsdp_training_state_t state;
} seen_event_t;

static seen_event_t seen[MAX_EVENTS];
static int num_seen;

static void
record(void *context, const fsdp_event_t *event)
{
    (void)context;
    if (num_seen == MAX_EVENTS || event->kind == FSDP_EVENT_WAIT_FOR_UNSHARD)
        return;
    seen[num_seen].kind = event->kind;
    snprintf(seen[num_seen].unit, sizeof seen[0].unit, "%s", event->unit);
    seen[num_seen++].state = event->state;
}

/* ---- the golden record --------------------------------------------------- */

static fsdp_json_t *golden;

static void
read_golden(void)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/golden/fsdp1_events.json",
             getenv("FSDP_DATA_DIR"));
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s cannot be opened", path);
    static char text[1000000];
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    ck_assert_msg(fsdp_json_parse(path, text, length, &golden) == FSDP_OK, "%s",
                  fsdp_error_message());
}

static void
free_golden(void)
{
    fsdp_json_destroy(&golden);
}

static const char *
text_of(const fsdp_json_t *object, const char *key)
{
    return fsdp_json_get_string(fsdp_json_member(object, key));
}

static int64_t
integer(const fsdp_json_t *value)
{
    int64_t n = -1;
    ck_assert(fsdp_json_get_integer(value, &n));
    return n;
}

static int
kind_of(const char *name)
{
    static const char *const names[] = {"unshard",    "wait_for_unshard",
                                        "reshard",    "reduce_scatter",
                                        "all_reduce", "post_backward"};
    for (int k = 0; k < FSDP_EVENT_KINDS; k++)
        if (strcmp(name, names[k]) == 0)
            return k;
    return -1;
}

static int
state_of(const char *name)
{
    static const char *const names[] = {"IDLE", "FORWARD", "BACKWARD_PRE",
                                        "BACKWARD_POST"};
    for (int k = 0; k < 4; k++)
        if (name != NULL && strcmp(name, names[k]) == 0)
            return k;
    return -1; /* collectives carry a size instead */
}

/* ---- comparing ----------------------------------------------------------- */

typedef struct running {
    const fsdp_json_t *scenario;
    const char *name;
    int step, phase;
    fsdp_mesh_t *mesh;
    bool hybrid, one_rank, frozen_front;
} running_t;

/* The events of one kind of interest, all but all-reduces or only those. */
static bool
is_compared(const running_t *run, int kind, const char *unit, bool reduces)
{
    if (kind < 0 || (run->frozen_front && strcmp(unit, "layers.0") == 0))
        return false;
    if (kind == FSDP_EVENT_ALL_REDUCE && run->one_rank)
        return false;
    bool apart = run->hybrid && kind == FSDP_EVENT_ALL_REDUCE;
    return apart == reduces;
}

static int
next_seen(const running_t *run, int i, bool reduces)
{
    while (i < num_seen &&
           !is_compared(run, (int)seen[i].kind, seen[i].unit, reduces))
        i++;
    return i;
}

static void
compare_events(const running_t *run, const fsdp_json_t *trace, bool reduces)
{
    int at = next_seen(run, 0, reduces);
    for (size_t i = 0; i < fsdp_json_size(trace); i++) {
        const fsdp_json_t *e = fsdp_json_at(trace, i);
        const char *what = fsdp_json_get_string(fsdp_json_at(e, 0));
        const char *unit = fsdp_json_get_string(fsdp_json_at(e, 1));
        int kind = kind_of(what);
        int state = state_of(fsdp_json_get_string(fsdp_json_at(e, 2)));
        if (!is_compared(run, kind, unit, reduces))
            continue;
        ck_assert_msg(at < num_seen && (int)seen[at].kind == kind &&
                          strcmp(seen[at].unit, unit) == 0 &&
                          (state < 0 || (int)seen[at].state == state),
                      "%s, step %d, phase %d: event %d is kind %d \"%s\" in "
                      "state %d instead of %s \"%s\" in state %d",
                      run->name, run->step, run->phase, at,
                      at < num_seen ? (int)seen[at].kind : -1,
                      at < num_seen ? seen[at].unit : "",
                      at < num_seen ? (int)seen[at].state : -1, what, unit,
                      state);
        at = next_seen(run, at + 1, reduces);
    }
    ck_assert_msg(at == num_seen,
                  "%s, step %d, phase %d: kind %d \"%s\" is "
                  "too much",
                  run->name, run->step, run->phase, (int)seen[at].kind,
                  seen[at].unit);
}

/* Calls and elements sent, each collective's over its ranks. */
static void
compare_traffic(const running_t *run, const fsdp_json_t *trace)
{
    uint64_t calls[2] = {0}, sent[2] = {0};
    fsdp_comm_t *shard = fsdp_mesh_shard_comm(run->mesh);
    uint64_t w = (uint64_t)fsdp_comm_size(shard);
    for (size_t i = 0; i < fsdp_json_size(trace); i++) {
        const fsdp_json_t *e = fsdp_json_at(trace, i);
        const char *what = fsdp_json_get_string(fsdp_json_at(e, 0));
        int reduce = strcmp(what, "reduce_scatter") == 0;
        if (!reduce && strcmp(what, "all_gather") != 0)
            continue;
        uint64_t numel = (uint64_t)integer(fsdp_json_at(e, 2));
        calls[reduce]++; /* the unpadded input is padded to W chunks */
        sent[reduce] += (w - 1) * (reduce ? (numel + w - 1) / w : numel);
    }
    fsdp_comm_counter_t ag = fsdp_comm_counter(shard, FSDP_ALL_GATHER);
    fsdp_comm_counter_t rs = fsdp_comm_counter(shard, FSDP_REDUCE_SCATTER);
    ck_assert_msg(ag.calls == calls[0] && ag.bytes_sent == 4 * sent[0] &&
                      rs.calls == calls[1] && rs.bytes_sent == 4 * sent[1],
                  "%s, step %d, phase %d: traffic", run->name, run->step,
                  run->phase);
}

/* Compares what happened since the last call with the next phase. */
static void
expect_phase(running_t *run, const char *phase)
{
    const fsdp_json_t *steps = fsdp_json_member(run->scenario, "steps");
    const fsdp_json_t *phases = fsdp_json_at(steps, (size_t)run->step);
    const fsdp_json_t *ph = fsdp_json_at(phases, (size_t)run->phase);
    const fsdp_json_t *trace = fsdp_json_member(ph, "trace");
    ck_assert_str_eq(text_of(ph, "phase"), phase);
    compare_events(run, trace, false);
    if (run->hybrid)
        compare_events(run, trace, true);
    if (!run->frozen_front)
        compare_traffic(run, trace);
    num_seen = 0;
    fsdp_mesh_reset_counters(run->mesh);
    run->phase++;
}

/* ---- the models ---------------------------------------------------------- */

static bool
begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool
ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

static net_config_t
net_of(const char *name)
{
    net_config_t c = {.stem = true,
                      .head = true,
                      .uses = 3,
                      .order = {0, 1, 2},
                      .dropped = -1};
    if (begins(name, "mlp") || begins(name, "head"))
        c.stem = false;
    if (begins(name, "mlp"))
        c.head = false;
    if (begins(name, "uses_"))
        c.uses = 0;
    for (const char *p = name + 5; begins(name, "uses_") && *p != '_'; p++)
        c.order[c.uses++] = *p - '0';
    if (begins(name, "unused_module")) {
        c.uses = 2;
        c.order[1] = 2;
    }
    if (begins(name, "unused_output"))
        c.dropped = 1;
    return c;
}

static void
freeze(fsdp_module_t *net, const char *name)
{
    fsdp_parameter_t *all[16];
    size_t count = fsdp_module_parameters(net, all, 16);
    for (size_t i = 0; i < count; i++) {
        const char *p = all[i]->name;
        if ((strcmp(name, "frozen_layer") == 0 && begins(p, "layers.1.")) ||
            (strcmp(name, "frozen_bias") == 0 && begins(p, "layers.1.bias")) ||
            (strcmp(name, "frozen_front") == 0 &&
             (begins(p, "stem.") || begins(p, "layers.0."))))
            all[i]->requires_grad = false;
    }
}

static void
wrap(const fsdp_json_t *scenario, fsdp_module_t *net, fsdp_mesh_t *mesh)
{
    const fsdp_json_t *given = fsdp_json_member(scenario, "options");
    fsdp1_options_t o = fsdp1_options_default();
    o.mesh = mesh;
    ck_assert(fsdp_sharding_strategy_from_name(text_of(scenario, "strategy"),
                                               &o.sharding_strategy));
    const char *prefetch = text_of(given, "backward_prefetch");
    ck_assert(fsdp_backward_prefetch_from_name(
        prefetch != NULL ? prefetch : "NONE", &o.backward_prefetch));
    o.forward_prefetch = fsdp_json_member(given, "forward_prefetch") != NULL;
    o.use_orig_params = fsdp_json_member(given, "use_orig_params") != NULL;
    for (int i = 0; i < net_num_layers(net); i++)
        ck_assert(fsdp_fully_sharded_data_parallel(net_layer(net, i), &o) ==
                  FSDP_OK);
    ck_assert(fsdp_fully_sharded_data_parallel(net, &o) == FSDP_OK);
}

/* ---- running them -------------------------------------------------------- */

static void
run_plain(running_t *run, fsdp_module_t *net, size_t rows, const char *forward,
          const char *backward)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = net_batch(net, tape, rows, 0);
    if (strcmp(run->name, "input_requires_grad") == 0)
        x->requires_grad = true;
    fsdp_tensor_t *loss = net_loss(net, tape, x);
    expect_phase(run, forward);
    fsdp_backward(tape, loss);
    expect_phase(run, backward);
    fsdp_tape_destroy(&tape);
}

static void
run_evaluation(running_t *run, fsdp_module_t *net)
{
    fsdp_tape_options_t o = fsdp_tape_options_default();
    o.grad_enabled = false;
    fsdp_tape_t *tape = fsdp_tape_create(&o);
    net_loss(net, tape, net_batch(net, tape, NET_BATCH, 0));
    fsdp_tape_destroy(&tape);
    expect_phase(run, "evaluation");
}

static void
run_step(running_t *run, fsdp_module_t *net)
{
    bool no_sync = ends(run->name, "_no_sync");
    if (ends(run->name, "_evaluate_first"))
        run_evaluation(run, net);
    if (!no_sync && !ends(run->name, "_accumulate")) {
        run_plain(run, net, NET_BATCH, "forward", "backward");
        return;
    }
    ck_assert(fsdp1_set_requires_gradient_sync(net, !no_sync) == FSDP_OK);
    run_plain(run, net, NET_BATCH / 2, "forward 0", "backward 0");
    ck_assert(fsdp1_set_requires_gradient_sync(net, true) == FSDP_OK);
    run_plain(run, net, NET_BATCH / 2, "forward 1", "backward 1");
}

static void
zero_all(fsdp_module_t *net)
{
    fsdp_parameter_t *all[16];
    size_t count = fsdp_module_parameters(net, all, 16);
    for (size_t i = 0; i < count; i++)
        fsdp_parameter_local_zero_grad(all[i]);
}

static void
run_scenario(const fsdp_json_t *scenario)
{
    running_t run = {.scenario = scenario, .name = text_of(scenario, "name")};
    run.hybrid = fsdp_json_size(fsdp_json_member(scenario, "mesh")) == 2;
    run.one_rank = fsdp_comm_size(fsdp_comm_world()) == 1;
    run.frozen_front = strcmp(run.name, "frozen_front") == 0;
    run.mesh = run.hybrid ? fsdp_mesh_create_2d(2, 2) : fsdp_mesh_create_1d();
    net_config_t config = net_of(run.name);
    fsdp_module_t *net = net_create(&config);
    freeze(net, run.name);
    wrap(scenario, net, run.mesh);
    num_seen = 0;
    fsdp_mesh_reset_counters(run.mesh);
    fsdp_set_event_hook(record, NULL);
    for (run.step = 0; run.step < 2; run.step++) {
        run.phase = 0;
        run_step(&run, net);
        zero_all(net);
    }
    fsdp_set_event_hook(NULL, NULL);
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&run.mesh);
}

START_TEST(events_as_pytorch)
{
    const fsdp_json_t *all = fsdp_json_member(golden, "scenarios");
    int ran = 0;
    for (size_t i = 0; i < fsdp_json_size(all); i++) {
        const fsdp_json_t *s = fsdp_json_at(all, i);
        if (integer(fsdp_json_member(s, "world_size")) !=
            fsdp_comm_size(fsdp_comm_world()))
            continue;
        run_scenario(s);
        ran++;
    }
    ck_assert(ran > 0);
}
END_TEST

/* ---- layouts ------------------------------------------------------------- */

static fsdp_values_t
nothing(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    (void)self;
    (void)tape;
    return inputs;
}

static fsdp_dtype_t
dtype_of(const fsdp_json_t *row, const char *key)
{
    const char *name = text_of(row, key);
    return name != NULL ? fsdp_dtype_from_name(name) : FSDP_DTYPE_NONE;
}

/* Parameters of zeros, so that the padding shows. */
static fsdp_module_t *
module_of(const fsdp_json_t *row)
{
    const fsdp_json_t *shapes = fsdp_json_member(row, "shapes");
    fsdp_module_t *module = fsdp_module_create("", "Bag", nothing, NULL, 0);
    for (size_t i = 0; i < fsdp_json_size(shapes); i++) {
        const fsdp_json_t *dims = fsdp_json_at(shapes, i);
        size_t shape[FSDP_MAX_DIMS];
        char name[8];
        int ndim = (int)fsdp_json_size(dims);
        for (int d = 0; d < ndim; d++)
            shape[d] = (size_t)integer(fsdp_json_at(dims, (size_t)d));
        snprintf(name, sizeof name, "p%d", (int)i);
        fsdp_module_add_parameter(
            module, fsdp_parameter_create(name, dtype_of(row, "dtype"), ndim,
                                          shape, FSDP_INIT_ZEROS, 0, 1));
    }
    return module;
}

static bool
cut_is(fsdp_parameter_t *parameter, const fsdp_json_t *want)
{
    fsdp_local_t local = fsdp_parameter_local(parameter);
    if (fsdp_json_size(want) != 3) /* null: nothing here */
        return local.numel == 0;
    return local.numel == (size_t)integer(fsdp_json_at(want, 2)) &&
           fsdp_layout_begin(&local.layout) ==
               (size_t)integer(fsdp_json_at(want, 1)) &&
           local.numel == fsdp_layout_numel(&local.layout);
}

/* Where in the shard the parameter's elements begin, counted from the first one
 * that the rank has. */
static bool
offset_is(const fsdp_local_t *local, const fsdp_json_t *want,
          const fsdp_local_t *first, const fsdp_json_t *first_want,
          fsdp_dtype_t dtype)
{
    int64_t elements =
        integer(fsdp_json_at(want, 0)) - integer(fsdp_json_at(first_want, 0));
    return (char *)local->data - (char *)first->data ==
           elements * (int64_t)fsdp_dtype_size(dtype);
}

/* The values of the rank's shard: zeros, and 42 or 0 where padding is. */
static bool
shard_is(const fsdp_json_t *values, const fsdp_local_t *first,
         const fsdp_json_t *first_want, fsdp_dtype_t dtype)
{
    size_t n = fsdp_json_size(values);
    size_t at = (size_t)integer(fsdp_json_at(first_want, 0));
    size_t size = fsdp_dtype_size(dtype);
    const char *shard = (const char *)first->data - at * size;
    for (size_t i = 0; i < n; i++) {
        double want = 0, have;
        fsdp_convert(dtype, shard + i * size, FSDP_FP64, &have, 1);
        if (!fsdp_json_get_number(fsdp_json_at(values, i), &want) ||
            have != want)
            return false;
    }
    return true;
}

static void
check_row(const fsdp_json_t *row, fsdp_mesh_t *mesh)
{
    int rank = fsdp_comm_rank(fsdp_comm_world());
    fsdp_module_t *module = module_of(row);
    fsdp1_options_t o = fsdp1_options_default();
    o.mesh = mesh;
    fsdp_json_get_bool(fsdp_json_member(row, "use_orig_params"),
                       &o.use_orig_params);
    o.mixed_precision.param_dtype = dtype_of(row, "param_dtype");
    ck_assert(fsdp_fully_sharded_data_parallel(module, &o) == FSDP_OK);
    const fsdp_json_t *ranks = fsdp_json_member(row, "ranks");
    const fsdp_json_t *mine = fsdp_json_at(ranks, (size_t)rank);
    const fsdp_json_t *values =
        fsdp_json_at(fsdp_json_member(row, "values"), (size_t)rank);
    bool good = true;
    const fsdp_json_t *first_want = NULL;
    fsdp_local_t first = {0};
    for (int i = 0; i < module->num_parameters; i++) {
        const fsdp_json_t *want = fsdp_json_at(mine, (size_t)i);
        fsdp_local_t local = fsdp_parameter_local(module->parameter[i]);
        good = good && cut_is(module->parameter[i], want);
        if (local.numel > 0 && first_want == NULL) {
            first = local;
            first_want = want;
        }
        if (first_want != NULL && local.numel > 0)
            good = good && offset_is(&local, want, &first, first_want,
                                     dtype_of(row, "dtype"));
    }
    if (first_want != NULL)
        good = good &&
               shard_is(values, &first, first_want, dtype_of(row, "dtype"));
    mck_assert(good);
    fsdp_module_destroy(&module);
}

START_TEST(layouts_as_pytorch)
{
    const fsdp_json_t *rows = fsdp_json_member(golden, "shards");
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    int ran = 0;
    for (size_t i = 0; i < fsdp_json_size(rows); i++) {
        const fsdp_json_t *row = fsdp_json_at(rows, i);
        if (integer(fsdp_json_member(row, "world_size")) !=
            fsdp_comm_size(fsdp_comm_world()))
            continue;
        check_row(row, mesh);
        ran++;
    }
    ck_assert_int_eq(ran, 6);
    fsdp_mesh_destroy(&mesh);
}
END_TEST

int
main(int argc, char **argv)
{
    Suite *suite = suite_create("fsdp1_events");
    TCase *tcase = tcase_create("order");
    suite_add_tcase(suite, tcase);
    tcase_add_unchecked_fixture(tcase, read_golden, free_golden);
    tcase_add_test(tcase, events_as_pytorch);
    tcase_add_test(tcase, layouts_as_pytorch);
    return mck_run(argc, argv, suite);
}
