/* config.json as Hugging Face writes it. */

#include "checkpoint/hf_config.h"

static void
write_size(fsdp_json_writer_t *w, const char *field, size_t size)
{
    fsdp_json_put_integer(w, field, (int64_t)size);
}

static void
write_class(fsdp_json_writer_t *w, const char *class, const char *model_type)
{
    fsdp_json_key(w, "architectures");
    fsdp_json_open_array(w);
    fsdp_json_string(w, class);
    fsdp_json_close_array(w);
    fsdp_json_put_string(w, "model_type", model_type);
}

static void
write_gpt2(const fsdp_gpt2_config_t *c, fsdp_json_writer_t *w)
{
    write_class(w, "GPT2LMHeadModel", "gpt2");
    write_size(w, "vocab_size", c->vocab_size);
    write_size(w, "n_positions", c->n_positions);
    write_size(w, "n_embd", c->n_embd);
    write_size(w, "n_layer", c->n_layer);
    write_size(w, "n_head", c->n_head);
    fsdp_json_key(w, "n_inner");
    fsdp_json_null(w);
    fsdp_json_put_string(w, "activation_function", "gelu_new");
    fsdp_json_put_double(w, "resid_pdrop", c->resid_pdrop);
    fsdp_json_put_double(w, "embd_pdrop", c->embd_pdrop);
    fsdp_json_put_double(w, "attn_pdrop", c->attn_pdrop);
    fsdp_json_put_double(w, "layer_norm_epsilon", c->layer_norm_epsilon);
    fsdp_json_put_double(w, "initializer_range", c->initializer_range);
    fsdp_json_put_bool(w, "tie_word_embeddings", c->tie_word_embeddings);
}

static void
write_llama(const fsdp_llama_config_t *c, fsdp_json_writer_t *w)
{
    write_class(w, "LlamaForCausalLM", "llama");
    write_size(w, "vocab_size", c->vocab_size);
    write_size(w, "hidden_size", c->hidden_size);
    write_size(w, "intermediate_size", c->intermediate_size);
    write_size(w, "num_hidden_layers", c->num_hidden_layers);
    write_size(w, "num_attention_heads", c->num_attention_heads);
    write_size(w, "num_key_value_heads", c->num_key_value_heads);
    write_size(w, "head_dim", c->head_dim);
    fsdp_json_put_string(w, "hidden_act", "silu");
    write_size(w, "max_position_embeddings", c->max_position_embeddings);
    fsdp_json_put_double(w, "initializer_range", c->initializer_range);
    fsdp_json_put_double(w, "rms_norm_eps", c->rms_norm_eps);
    fsdp_json_put_double(w, "rope_theta",
                         c->rope_theta); /* for transformers 4 */
    fsdp_json_key(w, "rope_parameters");
    fsdp_json_open_object(w);
    fsdp_json_put_string(w, "rope_type", "default");
    fsdp_json_put_double(w, "rope_theta", c->rope_theta);
    fsdp_json_close_object(w);
    fsdp_json_put_double(w, "attention_dropout", c->attention_dropout);
    fsdp_json_put_bool(w, "attention_bias", c->attention_bias);
    fsdp_json_put_bool(w, "mlp_bias", c->mlp_bias);
    fsdp_json_put_bool(w, "tie_word_embeddings", c->tie_word_embeddings);
}

void
fsdp_hf_config_write(const fsdp_hf_config_t *config, fsdp_json_writer_t *w)
{
    fsdp_json_open_object(w);
    if (config->model == FSDP_HF_GPT2)
        write_gpt2(&config->gpt2, w);
    else
        write_llama(&config->llama, w);
    if (config->stored != FSDP_DTYPE_NONE)
        fsdp_json_put_string(w, "dtype", fsdp_dtype_name(config->stored));
    fsdp_json_close_object(w);
}
