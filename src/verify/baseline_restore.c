/* The baseline goes on from a checkpoint, which it reads whole: no layout of the
 * run has a part in it. */

#include <string.h>

#include "fsdp/memory.h"
#include "verify/internal.h"

static void
read_thing(const fsdp_checkpoint_t *checkpoint, const verified_t *param,
           const char *state, void *out)
{
    fsdp_status_t status = fsdp_checkpoint_read(
        checkpoint, param->run->name, state, param->dtype, param->numel, out);
    FSDP_CHECK(status == FSDP_OK, "%s", fsdp_error_message());
}

static void
read_states(const fsdp_verifier_t *verifier, verified_t *param,
            const fsdp_checkpoint_t *checkpoint)
{
    const fsdp_verify_options_t *o = &verifier->options;
    const char *name[2] = {"exp_avg", "exp_avg_sq"};
    int count = 2;
    if (!o->adamw) {
        name[0] = "momentum_buffer";
        count = o->sgd.momentum != 0;
    }
    for (int k = 0; k < count; k++) {
        param->state[k] = fsdp_alloc(
            FSDP_MEM_BASELINE, param->numel * fsdp_dtype_size(param->dtype));
        read_thing(checkpoint, param, name[k], param->state[k]);
    }
}

void
baseline_restore(fsdp_verifier_t *verifier, const fsdp_checkpoint_t *checkpoint)
{
    for (int p = 0; p < verifier->num_params; p++) {
        verified_t *param = &verifier->param[p];
        read_thing(checkpoint, param, NULL, param->base->data);
        param->updates = fsdp_checkpoint_updates(checkpoint, param->run->name);
        if (param->updates > 0)
            read_states(verifier, param, checkpoint);
    }
}
