/** \file small_gpt2.h  A GPT-2 of two layers, and two samples of five tokens. */
#ifndef TESTS_NN_SMALL_GPT2_H
#define TESTS_NN_SMALL_GPT2_H

#include "fsdp/gpt2.h"
#include "nn/nn_case.h"

static const int32_t tokens[] = {3, 0, 3, 6, 1, 5, 0, 2, 4, 4};
static const int32_t targets[] = {0, 3, 6, 1, -100, 0, 2, 4, 4, 3};

static inline fsdp_module_t *
small_gpt2(bool tied, double dropout)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = 2;
    config.n_head = 2;
    config.n_embd = 8;
    config.vocab_size = 7;
    config.n_positions = 6;
    config.tie_word_embeddings = tied;
    config.attn_pdrop = config.embd_pdrop = config.resid_pdrop = dropout;
    config.dtype = FSDP_FP64;
    config.seed = 11;
    return fsdp_gpt2_create(&config);
}

/** The loss of one batch; its backward too, if gradients are enabled. */
static inline double
gpt2_loss(fsdp_module_t *m, const fsdp_tape_options_t *options)
{
    fsdp_tape_t *tape = fsdp_tape_create(options);
    fsdp_tensor_t *x = nn_int32(tape, 2, (size_t[]){2, 5}, tokens);
    fsdp_tensor_t *y = nn_int32(tape, 2, (size_t[]){2, 5}, targets);
    fsdp_tensor_t *loss = fsdp_gpt2_loss(tape, m, x, y);
    double value = fsdp_tensor_get(loss, 0);
    if (options->grad_enabled)
        fsdp_backward(tape, loss);
    fsdp_tape_destroy(&tape);
    return value;
}

#endif
