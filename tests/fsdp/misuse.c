/* Uses FSDP2 as the first argument names; started by misuse.sh, which looks at
 * how the run ends. */
#include <string.h>

#include "fsdp.h"
#include "net.h"

static const net_config_t config = {
    .stem = true, .head = true, .uses = 3, .order = {0, 1, 2}, .dropped = -1};

static fsdp_module_t *net;
static fsdp_options_t options;

static void
run_layer(void)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, FSDP_FP32, 2, (size_t[]){2, 5});
    fsdp_tensor_zero(x);
    fsdp_module_call1(net_layer(net, 0), tape, x);
    fsdp_tape_destroy(&tape);
}

/* The child becomes a root; then its parent runs. */
static void
child_first(void)
{
    net_shard(net, &options);
    run_layer();
    net_run(net, 0);
}

static void
list_as_root(void)
{
    FSDP_CHECK(fully_shard_list(net->child, 2, &options) == FSDP_OK, "%s",
               fsdp_error_message());
    run_layer();
}

static void
no_values(void)
{
    options.defer_init = true;
    net_shard(net, &options);
    net_run(net, 0);
}

static void
scalar(void)
{
    fsdp_parameter_t *parameter = fsdp_parameter_create(
        "scale", FSDP_FP32, 0, NULL, FSDP_INIT_ONES, 0, 1);
    fsdp_parameter_destroy(&parameter);
}

static void
used_while_sharded(void)
{
    net_shard(net, &options);
    fsdp_parameter_data(net_layer(net, 0)->parameter[0]);
}

static const struct {
    const char *name;
    void (*run)(void);
} all[] = {{"child-first", child_first},
           {"list-as-root", list_as_root},
           {"no-values", no_values},
           {"scalar", scalar},
           {"used-while-sharded", used_while_sharded}};

int
main(int argc, char **argv)
{
    fsdp_init(&argc, &argv);
    fsdp_mesh_t *mesh = fsdp_mesh_create_1d();
    options = fsdp_options_default();
    options.mesh = mesh;
    net = net_create(&config);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0)
            all[i].run();
    fsdp_module_destroy(&net);
    fsdp_mesh_destroy(&mesh);
    fsdp_finalize();
    return 0;
}
