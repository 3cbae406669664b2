#include "nn/parallel_layers.h"

#include "nn/ops_internal.h"
#include "nn/ops_parallel.h"

/* The sums that the ranks share, for one process in their place; NULL if they
 * are there. */
static const fsdp_product_cut_t *
cut_of(const fsdp_parallel_layer_t *layer, fsdp_product_cut_t *cut)
{
    if (layer->tp.comm != NULL)
        return NULL;
    *cut = (fsdp_product_cut_t){
        .parts = {layer->tp.degree, layer->groups, layer->tp.reduce_order},
        .inputs = layer->inputs};
    return cut;
}

static fsdp_tensor_t *
column_parallel(const fsdp_parallel_layer_t *layer, fsdp_tape_t *tape,
                fsdp_tensor_t *x, fsdp_parameter_t *weight,
                fsdp_parameter_t *bias)
{
    fsdp_product_cut_t room;
    if (layer->tp.comm != NULL)
        x = fsdp_copy_to_ranks(tape, x, &layer->tp, weight->name);
    return fsdp_op_product(tape, x, weight, bias, layer->out_in,
                           cut_of(layer, &room));
}

static fsdp_tensor_t *
row_parallel(const fsdp_parallel_layer_t *layer, fsdp_tape_t *tape,
             fsdp_tensor_t *x, fsdp_parameter_t *weight, fsdp_parameter_t *bias)
{
    fsdp_product_cut_t room;
    x = fsdp_op_product(tape, x, weight, NULL, layer->out_in,
                        cut_of(layer, &room));
    if (layer->tp.comm != NULL)
        x = fsdp_sum_over_ranks(tape, x, &layer->tp, weight->name);
    return bias != NULL ? fsdp_op_add_bias(tape, x, bias) : x;
}

fsdp_values_t
fsdp_parallel_linear_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                             fsdp_values_t inputs)
{
    const fsdp_parallel_layer_t *layer = self->config;
    fsdp_parameter_t *bias =
        self->num_parameters > 1 ? self->parameter[1] : NULL;
    return fsdp_values1((layer->inputs ? row_parallel : column_parallel)(
        layer, tape, inputs.tensor[0], self->parameter[0], bias));
}

fsdp_values_t
fsdp_parallel_embedding_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                                fsdp_values_t inputs)
{
    const fsdp_parallel_layer_t *layer = self->config;
    return fsdp_values1(fsdp_op_vocab_embedding(
        tape, inputs.tensor[0], self->parameter[0], &layer->tp));
}

/* Without targets somebody wants to see the logits, of a few rows. */
fsdp_values_t
fsdp_parallel_head_forward(fsdp_module_t *self, fsdp_tape_t *tape,
                           fsdp_values_t inputs)
{
    const fsdp_parallel_layer_t *layer = self->config;
    fsdp_parameter_t *weight = self->parameter[0];
    fsdp_tensor_t *x = inputs.tensor[0];
    if (inputs.count > 1)
        return fsdp_values1(fsdp_op_vocab_cross_entropy(
            tape, x, weight, inputs.tensor[1], FSDP_IGNORE_INDEX, &layer->tp));
    x = column_parallel(layer, tape, x, weight, NULL);
    if (layer->tp.comm != NULL)
        x = fsdp_gather_columns(tape, x, &layer->tp, weight->name);
    return fsdp_values1(x);
}
