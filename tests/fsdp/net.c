#include "net.h"

#include <stdio.h>

#include "fsdp/layers.h"
#include "fsdp/ops.h"
#include "fsdp/status.h"

typedef struct net {
    net_config_t config;
    int num_layers, stem, head; /* indices of children; -1: none */
    size_t inputs;
} net_t;

static fsdp_values_t
forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    const net_t *net = self->config;
    fsdp_tensor_t *x = inputs.tensor[0];
    if (net->stem >= 0)
        x = fsdp_relu(tape, fsdp_module_call1(self->child[net->stem], tape, x));
    for (int i = 0; i < net->config.uses; i++) {
        int layer = net->config.order[i];
        fsdp_tensor_t *y =
            fsdp_relu(tape, fsdp_module_call1(self->child[layer], tape, x));
        x = layer == net->config.dropped ? x : y;
    }
    if (net->head >= 0)
        x = fsdp_module_call1(self->child[net->head], tape, x);
    return fsdp_values1(x);
}

/* x + down(relu(up(norm(x)))) */
static fsdp_values_t
block_forward(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *y = fsdp_module_call1(self->child[0], tape, x);
    y = fsdp_relu(tape, fsdp_module_call1(self->child[1], tape, y));
    y = fsdp_module_call1(self->child[2], tape, y);
    return fsdp_values1(fsdp_add(tape, x, y));
}

static fsdp_module_t *
block_create(const char *name, fsdp_dtype_t dtype)
{
    char part[48];
    fsdp_module_t *block =
        fsdp_module_create(name, "Block", block_forward, NULL, 0);
    snprintf(part, sizeof part, "%s.norm", name);
    fsdp_module_add_child(block, fsdp_layer_norm_create(part, 5, 1e-5, dtype));
    snprintf(part, sizeof part, "%s.up", name);
    fsdp_module_add_child(block,
                          fsdp_linear_create(part, 5, 6, true, dtype, 1));
    snprintf(part, sizeof part, "%s.down", name);
    fsdp_module_add_child(block,
                          fsdp_linear_create(part, 6, 5, true, dtype, 1));
    return block;
}

static bool
is_plain(const net_config_t *config)
{
    return config->uses == 3 && config->order[1] == 1 &&
           config->order[2] == 2 && config->dropped < 0;
}

fsdp_module_t *
net_create(const net_config_t *config)
{
    static const size_t plain_width[] = {5, 7, 6, 3};
    net_t net = {.config = *config, .stem = -1, .head = -1};
    for (int i = 0; i < config->uses; i++)
        if (config->order[i] >= net.num_layers)
            net.num_layers = config->order[i] + 1;
    int n = net.num_layers;
    bool plain = is_plain(config);
    net.inputs = config->stem ? 4 : 5;
    net.stem = config->stem ? n : -1;
    net.head = config->head ? n + config->stem : -1;

    fsdp_dtype_t dtype =
        config->dtype == FSDP_DTYPE_NONE ? FSDP_FP32 : config->dtype;
    fsdp_module_t *self =
        fsdp_module_create("", "Net", forward, &net, sizeof net);
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d", i);
        fsdp_module_add_child(
            self, config->blocks
                      ? block_create(name, dtype)
                      : fsdp_linear_create(name, plain ? plain_width[i] : 5,
                                           plain ? plain_width[i + 1] : 5, true,
                                           dtype, 1));
    }
    if (config->stem)
        fsdp_module_add_child(self,
                              fsdp_linear_create("stem", 4, 5, true, dtype, 1));
    if (config->head)
        fsdp_module_add_child(
            self, fsdp_linear_create("head", plain ? 3 : 5, 2, true, dtype, 1));
    return self;
}

fsdp_module_t *
net_layer(fsdp_module_t *net, int i)
{
    return net->child[i];
}

int
net_num_layers(const fsdp_module_t *net)
{
    return ((const net_t *)net->config)->num_layers;
}

fsdp_tensor_t *
net_batch(const fsdp_module_t *module, fsdp_tape_t *tape, size_t rows, int salt)
{
    const net_t *net = module->config;
    fsdp_dtype_t dtype =
        net->config.dtype == FSDP_DTYPE_NONE ? FSDP_FP32 : net->config.dtype;
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, dtype, 2, (size_t[]){rows, net->inputs});
    for (size_t i = 0; i < rows * net->inputs; i++)
        fsdp_tensor_set(
            x, i, (double)((i * 37 + (size_t)salt * 101) % 64) / 16.0 - 2.0);
    return x;
}

fsdp_tensor_t *
net_loss(fsdp_module_t *net, fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    fsdp_tensor_t *y = fsdp_module_call1(net, tape, x);
    fsdp_tensor_t *zero =
        fsdp_tape_new_tensor(tape, y->dtype, y->ndim, y->shape);
    fsdp_tensor_zero(zero);
    return fsdp_mse_loss(tape, y, zero);
}

void
net_shard(fsdp_module_t *net, const fsdp_options_t *options)
{
    for (int i = 0; i < net_num_layers(net); i++)
        FSDP_CHECK(fully_shard(net_layer(net, i), options) == FSDP_OK, "%s",
                   fsdp_error_message());
    FSDP_CHECK(fully_shard(net, options) == FSDP_OK, "%s",
               fsdp_error_message());
}

void
net_run(fsdp_module_t *net, int micro)
{
    fsdp_tape_t *tape = fsdp_tape_create(NULL);
    fsdp_tensor_t *x = net_batch(net, tape, NET_BATCH, micro);
    fsdp_backward(tape, net_loss(net, tape, x));
    fsdp_tape_destroy(&tape);
}
