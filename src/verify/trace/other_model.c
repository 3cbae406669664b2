/* Numbers are changed in the configuration, positions in their table, and parts
 * by other forwards in the place of theirs, which know nothing of dropout: what
 * has some is then explained by none of them. */

#include "verify/trace/other_model.h"

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/ops.h"

void
other_model_configure(const fsdp_replay_change_t *change, trace_model_t *model)
{
    if (change->norm_eps > 0)
        model->gpt2.layer_norm_epsilon = model->llama.rms_norm_eps =
            change->norm_eps;
    if (change->rope_theta > 0)
        model->llama.rope_theta = change->rope_theta;
    if (change->activation != NULL)
        model->mlp.activation = *change->activation;
}

/* ---- positions ------------------------------------------------------------------ */

/* Position t takes the row of another one (the last rows have none), or none. */
static void
change_positions(const fsdp_replay_change_t *change, fsdp_module_t *module)
{
    fsdp_parameter_t *wpe =
        fsdp_module_find_parameter(module, "transformer.wpe.weight");
    if (wpe == NULL)
        return;
    size_t rows = wpe->shape[0], shift = change->first_position;
    size_t row = fsdp_parameter_numel(wpe) / rows * fsdp_dtype_size(wpe->dtype);
    char *data = wpe->data;
    if (shift > 0 && shift < rows)
        memmove(data, data + shift * row, (rows - shift) * row);
    if (change->no_positions)
        memset(data, 0, rows * row);
}

/* ---- parts ---------------------------------------------------------------------- */

/** Of a part whose forward is another one: in the place of the module's own
 *  configuration. */
typedef struct part {
    fsdp_replay_change_t change;
    size_t heads, kv_heads, depth;
    double rope_theta;
} part_t;

static fsdp_values_t
gpt2_attention(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    enum { C_ATTN, C_PROJ };
    const part_t *part = self->config;
    fsdp_tensor_t *x =
        fsdp_module_call1(self->child[C_ATTN], tape, inputs.tensor[0]);
    x = other_attention(tape, x, part->heads, &part->change.attention);
    return fsdp_values1(fsdp_module_call1(self->child[C_PROJ], tape, x));
}

static fsdp_tensor_t *
turn(const part_t *part, fsdp_tape_t *tape, fsdp_tensor_t *x, size_t heads)
{
    if (part->change.no_positions)
        return x;
    if (part->change.neighbour_pairs)
        x = other_pairs(tape, x, heads);
    fsdp_tensor_t *table =
        fsdp_tape_adopt(tape, fsdp_rotary_table(x->dtype, x->shape[1],
                                                part->depth, part->rope_theta));
    return fsdp_rotary(tape, x, heads, table);
}

static fsdp_values_t
llama_attention(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    enum { Q_PROJ, K_PROJ, V_PROJ, O_PROJ };
    const part_t *part = self->config;
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *q = fsdp_module_call1(self->child[Q_PROJ], tape, x);
    fsdp_tensor_t *k = fsdp_module_call1(self->child[K_PROJ], tape, x);
    fsdp_tensor_t *v = fsdp_module_call1(self->child[V_PROJ], tape, x);
    q = turn(part, tape, q, part->heads);
    k = turn(part, tape, k, part->kv_heads);
    x = other_grouped_attention(tape, q, k, v, part->heads, part->kv_heads,
                                &part->change.attention);
    return fsdp_values1(fsdp_module_call1(self->child[O_PROJ], tape, x));
}

static fsdp_tensor_t *
activate(const part_t *part, fsdp_tape_t *tape, fsdp_tensor_t *x)
{
    switch (*part->change.activation) {
    case FSDP_MLP_GELU:
        return fsdp_gelu_erf(tape, x);
    case FSDP_MLP_GELU_TANH:
        return fsdp_gelu_tanh(tape, x);
    default:
        return fsdp_relu(tape, x);
    }
}

static fsdp_values_t
gpt2_mlp(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    enum { C_FC, C_PROJ };
    fsdp_tensor_t *x =
        fsdp_module_call1(self->child[C_FC], tape, inputs.tensor[0]);
    x = activate(self->config, tape, x);
    return fsdp_values1(fsdp_module_call1(self->child[C_PROJ], tape, x));
}

static fsdp_values_t
llama_mlp(fsdp_module_t *self, fsdp_tape_t *tape, fsdp_values_t inputs)
{
    enum { GATE_PROJ, UP_PROJ, DOWN_PROJ };
    fsdp_tensor_t *x = inputs.tensor[0];
    fsdp_tensor_t *gate = fsdp_module_call1(self->child[GATE_PROJ], tape, x);
    gate = activate(self->config, tape, gate);
    x = fsdp_module_call1(self->child[UP_PROJ], tape, x);
    x = fsdp_multiply(tape, gate, x);
    return fsdp_values1(fsdp_module_call1(self->child[DOWN_PROJ], tape, x));
}

static part_t
part_of(const fsdp_replay_change_t *change, const trace_model_t *model)
{
    const fsdp_llama_config_t *l = &model->llama;
    if (model->kind == TRACE_MODEL_GPT2)
        return (part_t){.change = *change, .heads = model->gpt2.n_head};
    size_t heads = l->num_attention_heads;
    return (part_t){
        .change = *change,
        .heads = heads,
        .kv_heads = l->num_key_value_heads > 0 ? l->num_key_value_heads : heads,
        .depth = l->head_dim > 0 ? l->head_dim : l->hidden_size / heads,
        .rope_theta = l->rope_theta};
}

static void
replace(fsdp_module_t *module, fsdp_forward_fn_t forward, const part_t *part)
{
    part_t *config = fsdp_alloc(FSDP_MEM_BASELINE, sizeof *config);
    *config = *part;
    fsdp_free(module->config);
    module->config = config;
    module->forward = forward;
}

static bool
has_other_attention(const fsdp_replay_change_t *c, bool llama)
{
    const attention_change_t *a = &c->attention;
    return a->everywhere || a->next || a->scale != ATTENTION_BY_ROOT_OF_DEPTH ||
           a->dealt_keys || (llama && (c->neighbour_pairs || c->no_positions));
}

static void
change_part(const part_t *part, fsdp_module_t *module)
{
    const fsdp_replay_change_t *c = &part->change;
    if (strcmp(module->kind, "GPT2Attention") == 0 &&
        has_other_attention(c, false))
        replace(module, gpt2_attention, part);
    else if (strcmp(module->kind, "LlamaAttention") == 0 &&
             has_other_attention(c, true))
        replace(module, llama_attention, part);
    else if (strcmp(module->kind, "GPT2MLP") == 0 && c->activation != NULL)
        replace(module, gpt2_mlp, part);
    else if (strcmp(module->kind, "LlamaMLP") == 0 && c->activation != NULL)
        replace(module, llama_mlp, part);
}

void
other_model_rebuild(const fsdp_replay_change_t *change,
                    const trace_model_t *model, fsdp_module_t *module)
{
    if (model->kind == TRACE_MODEL_MLP)
        return;
    part_t part = part_of(change, model);
    size_t count = fsdp_module_modules(module, NULL, 0);
    fsdp_module_t **list = fsdp_alloc(FSDP_MEM_BASELINE, count * sizeof *list);
    fsdp_module_modules(module, list, count);
    for (size_t i = 0; i < count; i++)
        change_part(&part, list[i]);
    fsdp_free(list);
    change_positions(change, module);
}
