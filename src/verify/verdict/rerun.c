/* What happens within a step, forward and backward, is held to that step run again
 * by this library, from the parameters and the inputs that they had: then it
 * does not matter how far the two runs are apart by then.  Where their trace has
 * not what that needs, ours is run again from its beginning. */

#include <math.h>
#include <string.h>

#include "verify/verdict/spread.h"

/* Has nothing judged it? */
static bool
is_open(const fsdp_verdict_tensor_t *tensor, long first, long last)
{
    const record_t *record = tensor->theirs;
    return tensor->kind == FSDP_VERDICT_UNCHECKED && record->step >= first &&
           record->step <= last && record->numel > 0 &&
           record->phase != FSDP_TRACE_INPUT &&
           fsdp_dtype_is_floating(record->dtype);
}

/* The open tensors of some steps; in ours, those whose counterpart is the same
 * micro-batch. */
static spread_t
collect(judging_t *j, bool of_ours, long first, long last)
{
    spread_t spread = {.j = j,
                       .trace = of_ours ? j->ours : j->theirs,
                       .rule = of_ours ? "our whole run, in float64"
                                       : "the step in float64, from their own "
                                         "parameters and inputs"};
    size_t n = j->verdict.num_tensors;
    spread.tensor = fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *spread.tensor);
    for (size_t i = 0; i < n; i++) {
        fsdp_verdict_tensor_t *tensor = &j->tensor[i];
        if (!is_open(tensor, first, last))
            continue;
        const record_t *record = of_ours ? tensor->ours : tensor->theirs;
        if (record != NULL && record->numel == tensor->theirs->numel)
            spread.tensor[spread.count++] =
                (spread_tensor_t){.tensor = tensor, .record = record};
    }
    return spread;
}

static fsdp_status_t
rerun(judging_t *j, bool of_ours, long first, long last)
{
    spread_t spread = collect(j, of_ours, first, last);
    fsdp_status_t status = FSDP_OK;
    if (spread.count > 0)
        status = spread_run(&spread, first, last);
    spread_free(&spread);
    return status;
}

/* ---- which steps ----------------------------------------------------------------- */

/* Are all parameters of theirs there after that step? */
static bool
is_complete(const judging_t *j, long step)
{
    const fsdp_trace_about_t *about = j->their_about;
    for (int p = 0; p < about->num_parameters; p++) {
        const record_t *r =
            fsdp_trace_find(j->theirs, step, FSDP_TRACE_PARAMETER, -1,
                            about->parameter[p].name);
        uint64_t numel = 0;
        for (int k = 0; r != NULL && k < r->num_pieces; k++)
            numel += r->piece[k].numel;
        if (r == NULL || numel < r->numel)
            return false;
    }
    return about->num_parameters > 0;
}

/* The step after `step` from which their own run can be taken up; 0: none. */
static long
next_start(const judging_t *j, long step)
{
    long best = 0;
    for (int i = 0; i < j->their_about->num_steps; i++) {
        long s = j->their_about->step[i].step;
        if (s > step && (best == 0 || s < best) && is_complete(j, s - 1))
            best = s;
    }
    return best;
}

static long
last_step(const judging_t *j)
{
    size_t n = j->verdict.num_tensors;
    return n > 0 ? j->tensor[n - 1].theirs->step : 0;
}

/* Masks that another generator drew cannot be drawn again. */
static bool
is_repeatable(const fsdp_trace_about_t *about)
{
    return !(about->dropout > 0) ||
           (about->producer != NULL &&
            strncmp(about->producer, "libfsdp", 7) == 0);
}

/* False: it cannot be run; j->cannot_rerun says why. */
static bool
rerun_theirs(judging_t *j)
{
    long last = last_step(j), first = next_start(j, 0);
    if (!is_repeatable(j->their_about)) {
        j->cannot_rerun = fsdp_strdup("their dropout cannot be repeated");
        return false;
    }
    if (first == 0) {
        j->cannot_rerun = fsdp_strdup("their trace has not all parameters of "
                                      "any step, nor the initial ones");
        return false;
    }
    while (first > 0 && j->status == FSDP_OK) {
        long next = next_start(j, first);
        fsdp_status_t status =
            rerun(j, false, first, next > 0 ? next - 1 : last);
        if (status != FSDP_OK) {
            j->cannot_rerun = fsdp_strdup(fsdp_error_message());
            return false;
        }
        first = next;
    }
    return true;
}

static size_t
count_open(const judging_t *j)
{
    size_t count = 0;
    for (size_t i = 0; i < j->verdict.num_tensors; i++)
        count += is_open(&j->tensor[i], 1, last_step(j));
    return count;
}

void
verdict_rerun(judging_t *j)
{
    if (count_open(j) == 0 || rerun_theirs(j) || j->status != FSDP_OK)
        return;
    verdict_note(j,
                 "theirs cannot be run again here (%s); ours is, from its "
                 "beginning, so that bounds of later steps are wider",
                 j->cannot_rerun);
    if (!is_repeatable(j->our_about) ||
        rerun(j, true, 1, last_step(j)) != FSDP_OK)
        verdict_note(j,
                     "ours cannot be run again either (%s); what is left has "
                     "bounds that suppose more than they derive (weak)",
                     fsdp_error_message());
}
