#include "nn/parallel_case.h"

#include <stdio.h>
#include <string.h>

#include "fsdp/gpt2.h"
#include "fsdp/llama.h"
#include "fsdp/memory.h"
#include "fsdp/mlp.h"
#include "twin/numbers.h"

enum { SAMPLES = 3, POSITIONS = 5, MAX_PARAMETERS = 64 };

/* ---- models -------------------------------------------------------------- */

static fsdp_module_t *
create_mlp(size_t t, fsdp_dtype_t dtype)
{
    fsdp_mlp_config_t config = {
        .num_layers = 5,
        .width = {3, 4 * t, 5, 3 * t, 17, 6},
        .dtype = dtype,
        .seed = 7,
    };
    return fsdp_mlp_create(&config);
}

static fsdp_module_t *
create_gpt2(bool tied, size_t t, fsdp_dtype_t dtype)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = 2;
    config.n_head = 2 * t;
    config.n_embd = 6 * t;
    config.vocab_size = 7 * t;
    config.n_positions = POSITIONS + 1;
    config.tie_word_embeddings = tied;
    config.initializer_range = 0.3;
    if (!tied)
        config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = 0.25;
    config.dtype = dtype;
    config.seed = 5;
    return fsdp_gpt2_create(&config);
}

static fsdp_module_t *
create_llama(size_t t, fsdp_dtype_t dtype)
{
    fsdp_llama_config_t config = fsdp_llama_config_default();
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4 * t;
    config.num_key_value_heads = 2 * t;
    config.head_dim = 4;
    config.hidden_size = 10;
    config.intermediate_size = 3 * t;
    config.vocab_size = 6 * t;
    config.max_position_embeddings = POSITIONS;
    config.attention_bias = config.mlp_bias = true;
    config.initializer_range = 0.3;
    config.dtype = dtype;
    config.seed = 3;
    return fsdp_llama_create(&config);
}

fsdp_module_t *
case_create(case_model_t model, int t, fsdp_dtype_t dtype)
{
    size_t parts = (size_t)t;
    if (model == CASE_MLP)
        return create_mlp(parts, dtype);
    if (model == CASE_LLAMA)
        return create_llama(parts, dtype);
    return create_gpt2(model == CASE_GPT2_TIED, parts, dtype);
}

fsdp_status_t
case_parallelize(case_model_t model, fsdp_module_t *module,
                 const fsdp_tensor_parallel_t *tp)
{
    if (model == CASE_MLP)
        return fsdp_tensor_parallel_mlp(module, tp);
    if (model == CASE_LLAMA)
        return fsdp_tensor_parallel_llama(module, tp);
    return fsdp_tensor_parallel_gpt2(module, tp);
}

/* ---- a batch ------------------------------------------------------------- */

static fsdp_tensor_t *
mlp_loss(fsdp_tape_t *tape, fsdp_module_t *mlp, uint32_t salt)
{
    fsdp_dtype_t dtype = fsdp_mlp_layer(mlp, 0)->parameter[0]->dtype;
    fsdp_tensor_t *x =
        fsdp_tape_new_tensor(tape, dtype, 2, (size_t[]){SAMPLES, 3});
    fsdp_tensor_t *y =
        fsdp_tape_new_tensor(tape, FSDP_INT32, 1, (size_t[]){SAMPLES});
    for (size_t i = 0; i < SAMPLES * 3; i++)
        fsdp_tensor_set(x, i, twin_random(salt, i));
    for (size_t i = 0; i < SAMPLES; i++)
        fsdp_tensor_set(y, i, (double)((i + salt) % 6));
    return fsdp_mlp_loss(tape, mlp, x, y);
}

/* All words of the vocabulary turn up in some batch; one target is masked. */
static fsdp_tensor_t *
language_loss(case_model_t model, fsdp_tape_t *tape, fsdp_module_t *m, size_t v,
              uint32_t salt)
{
    size_t shape[2] = {SAMPLES, POSITIONS};
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_INT32, 2, shape);
    for (size_t i = 0; i < SAMPLES * POSITIONS; i++) {
        fsdp_tensor_set(x, i, (double)((5 * i + 3 * salt) % v));
        fsdp_tensor_set(y, i, i == 4 ? -100 : (double)((7 * i + salt) % v));
    }
    return model == CASE_LLAMA ? fsdp_llama_loss(tape, m, x, y)
                               : fsdp_gpt2_loss(tape, m, x, y);
}

double
case_run(case_model_t model, fsdp_module_t *module, int t, uint32_t salt)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.seed = 99;
    options.step = salt;
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    size_t v = (size_t)t * (model == CASE_LLAMA ? 6 : 7);
    fsdp_tensor_t *loss = model == CASE_MLP
                              ? mlp_loss(tape, module, salt)
                              : language_loss(model, tape, module, v, salt);
    fsdp_backward(tape, loss);
    double value = fsdp_tensor_get(loss, 0);
    fsdp_tape_destroy(&tape);
    return value;
}

/* ---- what must agree ----------------------------------------------------- */

bool
case_part_is(const fsdp_parameter_t *p, const void *part, const void *whole)
{
    size_t size = fsdp_dtype_size(p->dtype), n = fsdp_parameter_numel(p), run;
    for (size_t i = 0; i < n; i += run) {
        size_t there = fsdp_parameter_whole_element(p, i, &run);
        if (memcmp((const char *)part + i * size,
                   (const char *)whole + there * size, run * size) == 0)
            continue;
        fprintf(stderr, "%s differs in elements %zu to %zu\n", p->name, there,
                there + run);
        return false;
    }
    return true;
}

static bool
agree(fsdp_module_t *mine, fsdp_module_t *whole, bool grads)
{
    fsdp_parameter_t *list[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(mine, list, MAX_PARAMETERS);
    bool good = count > 0;
    for (size_t i = 0; i < count && good; i++) {
        fsdp_parameter_t *other =
            fsdp_module_find_parameter(whole, list[i]->name);
        good = !grads || (list[i]->grad != NULL && other->grad != NULL);
        if (good && grads)
            good =
                case_part_is(list[i], list[i]->grad->data, other->grad->data);
        if (good && !grads)
            good = case_part_is(list[i], fsdp_parameter_data(list[i]),
                                fsdp_parameter_data(other));
    }
    return good;
}

bool
case_grads_agree(fsdp_module_t *mine, fsdp_module_t *whole)
{
    return agree(mine, whole, true);
}

bool
case_data_agree(fsdp_module_t *mine, fsdp_module_t *whole)
{
    return agree(mine, whole, false);
}

void
case_update(fsdp_module_t *module)
{
    fsdp_parameter_t *list[MAX_PARAMETERS];
    size_t count = fsdp_module_parameters(module, list, MAX_PARAMETERS);
    for (size_t i = 0; i < count; i++) {
        fsdp_tensor_t *data = fsdp_tensor_borrow(list[i]->dtype, list[i]->ndim,
                                                 list[i]->shape, list[i]->data);
        for (size_t e = 0; e < fsdp_tensor_numel(data); e++)
            fsdp_tensor_set(data, e,
                            fsdp_tensor_get(data, e) -
                                fsdp_tensor_get(list[i]->grad, e) / 8);
        fsdp_tensor_destroy(&data);
        fsdp_parameter_zero_grad(list[i]);
    }
}
