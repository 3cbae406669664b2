/* What a saved model says of itself. */

#include <stdio.h>

#include "cli/llama.h"
#include "cli/task.h"

static void
add_widths(cli_metadata_t *m, const fsdp_mlp_config_t *mlp)
{
    char *text = cli_metadata_add(m, "widths");
    size_t used = 0, size = sizeof m->text[0];
    for (int i = 0; i <= mlp->num_layers && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, i ? ",%zu" : "%zu",
                                 mlp->width[i]);
}

void
cli_task_metadata(const cli_task_t *task, cli_metadata_t *m)
{
    static const char *const activation[] = {[FSDP_MLP_RELU] = "relu",
                                             [FSDP_MLP_GELU] = "gelu",
                                             [FSDP_MLP_GELU_TANH] =
                                                 "gelu_tanh"};
    const fsdp_gpt2_config_t *g = &task->gpt2;
    m->count = 0;
    cli_metadata_text(m, "format", "pt");
    if (task->options->model == CLI_MLP) {
        cli_metadata_text(m, "model_type", "mlp");
        add_widths(m, &task->mlp);
        cli_metadata_text(m, "activation_function",
                          activation[task->mlp.activation]);
        return;
    }
    if (task->options->model == CLI_LLAMA) {
        cli_llama_metadata(&task->llama, m);
        return;
    }
    cli_metadata_text(m, "model_type", "gpt2");
    cli_metadata_number(m, "n_layer", (double)g->n_layer);
    cli_metadata_number(m, "n_head", (double)g->n_head);
    cli_metadata_number(m, "n_embd", (double)g->n_embd);
    cli_metadata_number(m, "vocab_size", (double)g->vocab_size);
    cli_metadata_number(m, "n_positions", (double)g->n_positions);
    cli_metadata_number(m, "layer_norm_epsilon", g->layer_norm_epsilon);
    cli_metadata_text(m, "tie_word_embeddings",
                      g->tie_word_embeddings ? "true" : "false");
    cli_metadata_text(m, "activation_function", "gelu_new");
    if (g->n_experts > 0) {
        cli_metadata_number(m, "num_local_experts", (double)g->n_experts);
        cli_metadata_number(m, "num_experts_per_tok",
                            (double)g->n_experts_per_tok);
    }
}
