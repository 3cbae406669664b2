#include "cli/option_table.h"

#include <stddef.h>

#define AT(field) offsetof(cli_options_t, field)
#define BIG 1e15

const cli_option_spec_t cli_option_table[] = {
    /* the model */
    {"model", CLI_CHOICE, AT(model), 0, 0, "gpt2|mlp", CLI_TRAIN,
     "what to train (gpt2)", CLI_NEEDS_NOTHING},
    {"layers", CLI_COUNT, AT(layers), 1, 1000, "N", CLI_TRAIN,
     "gpt2: blocks (4)", CLI_NEEDS_GPT2},
    {"heads", CLI_COUNT, AT(heads), 1, 1000, "N", CLI_TRAIN,
     "gpt2: attention heads, a divisor of the width (4)", CLI_NEEDS_GPT2},
    {"width", CLI_COUNT, AT(width), 1, 1e6, "N", CLI_TRAIN,
     "gpt2: channels (128)", CLI_NEEDS_GPT2},
    {"context", CLI_COUNT, AT(context), 1, 1e6, "N", CLI_TRAIN,
     "gpt2: tokens of a sequence (128)", CLI_NEEDS_GPT2},
    {"vocab-size", CLI_COUNT, AT(vocab_size), 256, 1e7, "N", CLI_TRAIN,
     "gpt2: rows of the token embedding (256)", CLI_NEEDS_GPT2},
    {"untied", CLI_FLAG, AT(untied), 0, 0, NULL, CLI_TRAIN,
     "gpt2: give the head a weight of its own", CLI_NEEDS_GPT2},
    {"dropout", CLI_REAL, AT(dropout), 0, 0.99, "P", CLI_TRAIN,
     "gpt2: probability, in all three places (0)", CLI_NEEDS_GPT2},
    {"hidden", CLI_TEXT, AT(hidden), 0, 0, "N,N", CLI_TRAIN,
     "mlp: widths of the hidden layers (64,32)", CLI_NEEDS_MLP},
    {"dtype", CLI_CHOICE, AT(dtype), 0, 0, "float32|float64", CLI_TRAIN,
     "of parameters and arithmetic (float32)", CLI_NEEDS_NOTHING},
    /* the data */
    {"data", CLI_TEXT, AT(data), 0, 0, "FILE", CLI_TRAIN,
     "any text for gpt2, a CSV file with a label column for mlp",
     CLI_NEEDS_NOTHING},
    {"label-column", CLI_COUNT, AT(label_column), -1, 1e6, "N", CLI_TRAIN,
     "mlp: column of the class, from 0; -1 is the last (-1)", CLI_NEEDS_MLP},
    {"batch-size", CLI_COUNT, AT(batch_size), 1, 1e9, "N", CLI_TRAIN,
     "sequences or rows of a step over all ranks (16)", CLI_NEEDS_NOTHING},
    {"micro-batch-size", CLI_COUNT, AT(micro_batch_size), 1, 1e9, "N",
     CLI_TRAIN, "of one forward and backward on one rank (4)",
     CLI_NEEDS_NOTHING},
    {"eval-every", CLI_COUNT, AT(eval_every), 0, BIG, "N", CLI_TRAIN,
     "steps between held-out losses; 0: only at the end (0)",
     CLI_NEEDS_NOTHING},
    {"eval-batches", CLI_COUNT, AT(eval_batches), 1, 1e6, "N", CLI_TRAIN,
     "gpt2: micro-batches of held-out text (16)", CLI_NEEDS_GPT2},
    /* the training */
    {"steps", CLI_COUNT, AT(steps), 1, 4e9, "N", CLI_TRAIN, "(100)",
     CLI_NEEDS_NOTHING},
    {"optimizer", CLI_CHOICE, AT(optimizer), 0, 0, "adamw|sgd", CLI_TRAIN,
     "(adamw)", CLI_NEEDS_NOTHING},
    {"lr", CLI_REAL, AT(lr), 0, 1e6, "X", CLI_TRAIN, "learning rate (1e-3)",
     CLI_NEEDS_NOTHING},
    {"min-lr", CLI_REAL, AT(min_lr), 0, 1e6, "X", CLI_TRAIN,
     "end of a cosine from --lr; default: a constant rate", CLI_NEEDS_NOTHING},
    {"warmup-steps", CLI_COUNT, AT(warmup_steps), 0, BIG, "N", CLI_TRAIN,
     "linear from 0 (0)", CLI_NEEDS_NOTHING},
    {"weight-decay", CLI_REAL, AT(weight_decay), 0, 1e6, "X", CLI_TRAIN,
     "(0.01 for adamw, 0 for sgd)", CLI_NEEDS_NOTHING},
    {"grad-clip", CLI_REAL, AT(grad_clip), 0, 1e15, "X", CLI_TRAIN,
     "largest norm of the gradient; 0: no clipping (0)", CLI_NEEDS_NOTHING},
    {"momentum", CLI_REAL, AT(momentum), 0, 1e6, "X", CLI_TRAIN, "sgd (0)",
     CLI_NEEDS_SGD},
    {"nesterov", CLI_FLAG, AT(nesterov), 0, 0, NULL, CLI_TRAIN,
     "sgd: Nesterov's momentum", CLI_NEEDS_SGD},
    {"beta1", CLI_REAL, AT(beta1), 0, 0.999999, "X", CLI_TRAIN, "adamw (0.9)",
     CLI_NEEDS_ADAMW},
    {"beta2", CLI_REAL, AT(beta2), 0, 0.9999999, "X", CLI_TRAIN,
     "adamw (0.999)", CLI_NEEDS_ADAMW},
    {"eps", CLI_REAL, AT(eps), 0, 1, "X", CLI_TRAIN, "adamw (1e-8)",
     CLI_NEEDS_ADAMW},
    /* the sharding */
    {"reshard-after-forward", CLI_CHOICE, AT(reshard), 0, 0, "auto|true|false",
     CLI_TRAIN, "free gathered parameters after the forward (auto)",
     CLI_NEEDS_NOTHING},
    {"reduce-order", CLI_CHOICE, AT(reduce_order), 0, 0, "tree|rank|ring|mpi",
     CLI_TRAIN, "of sums over ranks (tree)", CLI_NEEDS_NOTHING},
    /* the checking */
    {"verify", CLI_CHOICE, AT(verify), 0, 0, "off|step|phase", CLI_TRAIN,
     "train unsharded as well and compare every bit (off)", CLI_NEEDS_NOTHING},
    {"inject", CLI_TEXT, AT(inject), 0, 0, "NAME[@STEP]", CLI_TRAIN,
     "put a fault into the run; \"list\" shows them", CLI_NEEDS_NOTHING},
    {"ledger", CLI_CHOICE, AT(ledger), 0, 0, "auto|off|record|check", CLI_TRAIN,
     "of collectives; check compares them over the ranks (with --verify: "
     "check)",
     CLI_NEEDS_NOTHING},
    /* the files */
    {"save", CLI_TEXT, AT(save), 0, 0, "FILE", CLI_TRAIN,
     "all parameters as safetensors, at the end", CLI_NEEDS_NOTHING},
    {"init", CLI_TEXT, AT(init), 0, 0, "FILE", CLI_TRAIN,
     "start from the parameters in a safetensors file", CLI_NEEDS_NOTHING},
    {"log-file", CLI_TEXT, AT(log_file), 0, 0, "FILE", CLI_TRAIN,
     "a JSON object a line", CLI_NEEDS_NOTHING},
    /* fsdp generate */
    {"model", CLI_TEXT, AT(model_file), 0, 0, "FILE", CLI_GENERATE,
     "what fsdp train --model gpt2 --save wrote", CLI_NEEDS_NOTHING},
    {"prompt", CLI_TEXT, AT(prompt), 0, 0, "TEXT", CLI_GENERATE,
     "how the text begins", CLI_NEEDS_NOTHING},
    {"tokens", CLI_COUNT, AT(tokens), 1, 1e8, "N", CLI_GENERATE,
     "how many follow (200)", CLI_NEEDS_NOTHING},
    {"temperature", CLI_REAL, AT(temperature), 0, 1000, "T", CLI_GENERATE,
     "0: always the likeliest (1)", CLI_NEEDS_NOTHING},
    /* all */
    {"seed", CLI_COUNT, AT(seed), 0, 9e15, "N", CLI_TRAIN | CLI_GENERATE,
     "of initial values, data and dropout, or of the sampling (1)",
     CLI_NEEDS_NOTHING},
    {"threads", CLI_COUNT, AT(threads), 1, 1024, "N",
     CLI_TRAIN | CLI_GENERATE | CLI_DOCTOR,
     "of each rank (cores divided by ranks)", CLI_NEEDS_NOTHING},
    {"timeout", CLI_REAL, AT(timeout), 0, 1e9, "SECONDS",
     CLI_TRAIN | CLI_GENERATE | CLI_DOCTOR,
     "longest wait for another rank; 0: no limit (60)", CLI_NEEDS_NOTHING},
};

const int cli_option_count = sizeof cli_option_table / sizeof *cli_option_table;

cli_options_t
cli_options_default(void)
{
    return (cli_options_t){
        .layers = 4,
        .heads = 4,
        .width = 128,
        .context = 128,
        .vocab_size = 256,
        .hidden = "64,32",
        .label_column = -1,
        .batch_size = 16,
        .micro_batch_size = 4,
        .eval_batches = 16,
        .steps = 100,
        .lr = 1e-3,
        .min_lr = -1,       /* constant */
        .weight_decay = -1, /* the optimizer's own */
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .prompt = "",
        .tokens = 200,
        .temperature = 1.0,
        .seed = 1,
        .timeout = 60,
    };
}
