/* What is a copy of something and so allows no rounding: inputs and initial
 * parameters are ours, a gathered parameter is that of the step before. */

#include <math.h>
#include <string.h>

#include "verify/value.h"
#include "verify/verdict/internal.h"

static bool
expect_ours(judging_t *j, const record_t *record, const char *rule,
            expected_t *expected)
{
    double *ours = verdict_read_ours(j, record);
    if (ours == NULL)
        return false;
    expected_make(expected, record, rule);
    for (uint64_t i = 0; i < record->numel; i++)
        expected->value[i] = value_is_floating(record->dtype)
                                 ? value_round(record->dtype, ours[i])
                                 : ours[i];
    fsdp_free(ours);
    return true;
}

/* The shards of the last update, in the type that is computed in. */
static bool
expect_gathered(judging_t *j, const record_t *record, expected_t *expected)
{
    const record_t *before =
        verdict_theirs(j, record, record->step - 1, FSDP_TRACE_PARAMETER, -1);
    double *values = verdict_read(j, j->theirs, before);
    if (values == NULL)
        return false;
    expected_make(expected, record,
                  "their own parameter of the update before, cast");
    for (uint64_t i = 0; i < record->numel; i++) {
        expected->value[i] = value_round(record->dtype, values[i]);
        if (isnan(values[i]))
            expected->bound[i] = INFINITY;
    }
    fsdp_free(values);
    return true;
}

bool
verdict_expect_copy(judging_t *j, const fsdp_verdict_tensor_t *tensor,
                    expected_t *expected)
{
    const record_t *record = tensor->theirs;
    if (record->phase == FSDP_TRACE_INPUT)
        return expect_ours(j, record, "our input", expected);
    if (record->phase == FSDP_TRACE_PARAMETER && record->step == 0)
        return expect_ours(j, record, "our initial parameter", expected);
    if (record->phase == FSDP_TRACE_GATHERED_PARAMETER)
        return expect_gathered(j, record, expected);
    return false;
}
