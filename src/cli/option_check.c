/* No option is without effect and silent about it. */

#include <string.h>

#include "cli/option_table.h"

static bool
is_met(cli_need_t need, const cli_options_t *o)
{
    switch (need) {
    case CLI_NEEDS_TEXT:
        return o->model != CLI_MLP;
    case CLI_NEEDS_LLAMA:
        return o->model == CLI_LLAMA;
    case CLI_NEEDS_GPT2:
        return o->model == CLI_GPT2;
    case CLI_NEEDS_MLP:
        return o->model == CLI_MLP;
    case CLI_NEEDS_SGD:
        return o->optimizer == CLI_SGD;
    case CLI_NEEDS_ADAMW:
        return o->optimizer == CLI_ADAMW;
    case CLI_NEEDS_PARAM_DTYPE:
        return cli_type(o->param_dtype) != FSDP_DTYPE_NONE;
    case CLI_NEEDS_SCALER:
        return o->grad_scaler;
    case CLI_NEEDS_FSDP2:
        return !cli_is_fsdp1(o);
    case CLI_NEEDS_FSDP1:
        return o->api == CLI_FSDP1 && o->strategy == 0;
    case CLI_NEEDS_RECORD:
        return o->record != NULL;
    case CLI_NEEDS_REPLAY:
        return o->replay != NULL;
    case CLI_NEEDS_EXPERTS:
        return o->experts > 0;
    case CLI_NEEDS_NOTHING:
        break;
    }
    return true;
}

bool
cli_is_given(const cli_options_t *options, const char *name)
{
    for (int i = 0; i < cli_option_count; i++)
        if (options->given[i] && strcmp(cli_option_table[i].name, name) == 0)
            return true;
    return false;
}

fsdp_status_t
cli_options_check(const cli_options_t *o)
{
    static const char *const remedy[] = {
        [CLI_NEEDS_TEXT] = "--model gpt2 or llama",
        [CLI_NEEDS_GPT2] = "--model gpt2",
        [CLI_NEEDS_LLAMA] = "--model llama",
        [CLI_NEEDS_MLP] = "--model mlp",
        [CLI_NEEDS_SGD] = "--optimizer sgd",
        [CLI_NEEDS_ADAMW] = "--optimizer adamw",
        [CLI_NEEDS_PARAM_DTYPE] = "--param-dtype",
        [CLI_NEEDS_SCALER] = "--grad-scaler",
        [CLI_NEEDS_FSDP2] = "--api fsdp2",
        [CLI_NEEDS_FSDP1] = "--api fsdp1",
        [CLI_NEEDS_RECORD] = "--record",
        [CLI_NEEDS_REPLAY] = "--replay FOLDER",
        [CLI_NEEDS_EXPERTS] = "--experts",
    };
    for (int i = 0; i < cli_option_count; i++) {
        const cli_option_spec_t *spec = &cli_option_table[i];
        if (o->given[i] && !is_met(spec->needs, o))
            return fsdp_error(FSDP_ERR_USAGE,
                              "--%s has a meaning with %s only; leave it out",
                              spec->name, remedy[spec->needs]);
    }
    return FSDP_OK;
}
