#include "checkpoint/hf_folder.h"

#include <libgen.h>
#include <unistd.h>

#include "base/whole_file.h"
#include "fsdp/memory.h"

/* Larger than any that is not made to do harm. */
enum { MAX_CONFIG = 1 << 24 };

/* ---- reading ------------------------------------------------------------- */

fsdp_status_t
fsdp_hf_folder_read_config(const char *folder, fsdp_hf_config_t *config)
{
    char *path = fsdp_weights_path(folder, FSDP_HF_CONFIG_FILE), *text = NULL;
    size_t length;
    fsdp_json_t *document = NULL;
    fsdp_status_t status = FSDP_OK;
    if (fsdp_weights_is_folder(folder))
        status = fsdp_file_read(path, MAX_CONFIG, &text, &length);
    else
        status = fsdp_error(
            FSDP_ERR_INPUT,
            "%s is no folder; a model's folder holds " FSDP_HF_CONFIG_FILE
            " and " FSDP_WEIGHTS_FILE,
            folder);
    if (status == FSDP_OK)
        status = fsdp_json_parse(path, text, length, &document);
    if (status == FSDP_OK)
        status = fsdp_hf_config_read(path, document, config);
    fsdp_json_destroy(&document);
    fsdp_free(text);
    fsdp_free(path);
    return status;
}

/* ---- does all belong together? -------------------------------------------- */

/* Is there a tensor [rows, columns] of this name? */
static bool
has(const fsdp_weights_t *weights, const char *name, size_t rows,
    size_t columns)
{
    bool twice;
    fsdp_stored_t stored = fsdp_weights_find_bare(weights, name, &twice);
    const fsdp_safetensors_entry_t *e = stored.entry;
    return e != NULL && e->ndim == 2 && e->shape[0] == rows &&
           e->shape[1] == columns;
}

static bool
bears_out_gpt2(const fsdp_weights_t *w, const fsdp_gpt2_config_t *c)
{
    return has(w, "wte.weight", c->vocab_size, c->n_embd) &&
           has(w, "wpe.weight", c->n_positions, c->n_embd);
}

static bool
bears_out_llama(const fsdp_weights_t *w, const fsdp_llama_config_t *c)
{
    size_t queries = c->num_attention_heads * c->head_dim;
    size_t keys = c->num_key_value_heads * c->head_dim;
    return has(w, "embed_tokens.weight", c->vocab_size, c->hidden_size) &&
           has(w, "layers.0.self_attn.q_proj.weight", queries,
               c->hidden_size) &&
           has(w, "layers.0.self_attn.k_proj.weight", keys, c->hidden_size) &&
           has(w, "layers.0.mlp.gate_proj.weight", c->intermediate_size,
               c->hidden_size);
}

fsdp_status_t
fsdp_hf_folder_check_sizes(const char *folder, const fsdp_weights_t *w,
                           const fsdp_hf_config_t *c)
{
    bool is_gpt2 = c->model == FSDP_HF_GPT2;
    size_t tensors = 0;
    for (size_t f = 0; f < w->count; f++)
        tensors += fsdp_safetensors_count(w->file[f]);
    size_t layers = is_gpt2 ? c->gpt2.n_layer : c->llama.num_hidden_layers;
    if (layers <= tensors &&
        (is_gpt2 ? bears_out_gpt2(w, &c->gpt2) : bears_out_llama(w, &c->llama)))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INPUT,
                      "%s: the sizes in its config.json are not those of its "
                      "tensors (shapes of the embeddings and the first layer, "
                      "number of layers); are they of one model?",
                      folder);
}

/* ---- may one be written? ------------------------------------------------- */

fsdp_status_t
fsdp_hf_folder_check(const char *folder)
{
    static const char *const taken[] = {FSDP_HF_CONFIG_FILE, FSDP_WEIGHTS_FILE,
                                        FSDP_WEIGHTS_INDEX};
    char *copy = fsdp_strdup(folder);
    bool there = fsdp_weights_is_folder(folder);
    bool writable = access(there ? folder : dirname(copy), W_OK) == 0;
    fsdp_free(copy);
    if (!writable)
        return fsdp_error(FSDP_ERR_IO,
                          "%s: the folder is not writable, or cannot be made; "
                          "choose another",
                          folder);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        char *path = fsdp_weights_path(folder, taken[i]);
        bool used = access(path, F_OK) == 0;
        fsdp_free(path);
        if (used)
            return fsdp_error(FSDP_ERR_IO,
                              "%s holds a model already (%s); choose an empty "
                              "or a new folder",
                              folder, taken[i]);
    }
    return FSDP_OK;
}
