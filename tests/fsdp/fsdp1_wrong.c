/* Uses FSDP1 as the first argument names; started by fsdp1_wrong.sh, which looks
 * at how the run ends. */
#include <stdio.h>
#include <string.h>

#include "fsdp.h"
#include "net.h"

static const net_config_t config = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

static fsdp_module_t *net;
static fsdp1_options_t options;

static void
wrap(int stage)
{
    for (int i = 0; i <= 3; i++) {
        fsdp_module_t *unit = i < 3 ? net_layer(net, i) : net;
        fsdp_status_t status =
            stage < 0 ? fsdp_fully_sharded_data_parallel(unit, &options)
                      : fsdp_zero(unit, (fsdp_zero_stage_t)stage, &options);
        FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
    }
}

static void
step(fsdp_module_t *module)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = net_batch(net, tape, NET_BATCH, 0);
    fsdp_tensor_t *y = fsdp_module_call1(module, tape, x);
    fsdp_tensor_t *zero =
        fsdp_tape_new_tensor(tape, y->dtype, y->ndim, y->shape);
    fsdp_tensor_zero(zero);
    fsdp_backward(tape, fsdp_mse_loss(tape, y, zero));
    fsdp_tape_destroy(&tape);
}

/* All layers are 5 x 5 then, and may change places. */
static void
set_order(int first, int second)
{
    int *order = ((net_config_t *)net->config)->order;
    order[0] = first;
    order[1] = second;
}

/* Rank 1 runs layer 1 before layer 0. */
static void
ranks_differ(void)
{
    options.check_execution_order = true;
    wrap(-1);
    if (fsdp_comm_rank(fsdp_comm_world()) == 1)
        set_order(1, 0);
    step(net);
}

/* The second and third iteration run them so, on all ranks. */
static void
iterations_differ(void)
{
    options.check_execution_order = true;
    wrap(-1);
    step(net);
    set_order(1, 0);
    step(net);
    step(net);
}

static void
gather_forgotten(void)
{
    fsdp_sgd_options_t o = fsdp_sgd_options_default();
    wrap(FSDP_ZERO2);
    fsdp_optimizer_t *sgd = fsdp_sgd_create(net, &o);
    step(net);
    fsdp_optimizer_step(sgd);
    fsdp_optimizer_zero_grad(sgd);
    step(net);
}

static void
run_while_summoned(void)
{
    wrap(-1);
    fsdp1_summon_full_params(net, NULL);
    step(net);
}

static void
inner_unit_first(void)
{
    wrap(-1);
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){2, 5});
    fsdp_tensor_zero(x);
    fsdp_module_call1(net_layer(net, 0), tape, x);
    step(net);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"ranks-differ", ranks_differ},
    {"iterations-differ", iterations_differ},
    {"gather-forgotten", gather_forgotten},
    {"run-while-summoned", run_while_summoned},
    {"inner-unit-first", inner_unit_first},
};

int
main(int argc, char **argv)
{
    fsdp_init(&argc, &argv);
    fsdp_comm_set_timeout(20);
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    net_config_t square = config;
    square.uses = 4; /* so that all are 5 x 5 */
    square.order[3] = 0;
    net = net_create(&square);
    options = fsdp1_options_default();
    options.mesh = mesh;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0)
            scenarios[i].run();
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
    fsdp_finalize();
    return 0;
}
