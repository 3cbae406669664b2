/* Where a tensor's element is, in words that both reports use. */

#include "verify/verdict/place.h"

#include <string.h>

#include "verify/verdict/internal.h"

void
verdict_index(const record_t *record, uint64_t element, uint64_t *index)
{
    for (int d = record->ndim - 1; d >= 0; d--) {
        uint64_t size = record->shape[d] > 0 ? record->shape[d] : 1;
        index[d] = element % size;
        element /= size;
    }
}

static const char *
unit_of_parameter(const fsdp_trace_about_t *about, const char *name)
{
    for (int i = 0; i < about->num_parameters; i++)
        if (strcmp(about->parameter[i].name, name) == 0)
            return about->parameter[i].unit;
    return NULL;
}

const char *
verdict_unit(const fsdp_verdict_t *verdict, const record_t *record)
{
    switch (record->phase) {
    case FSDP_TRACE_INPUT:
    case FSDP_TRACE_LOSS:
    case FSDP_TRACE_NORM:
        return NULL;
    case FSDP_TRACE_UNIT_INPUT:
    case FSDP_TRACE_UNIT_OUTPUT:
    case FSDP_TRACE_OUTPUT_GRAD:
    case FSDP_TRACE_INPUT_GRAD:
        return record->name;
    default:
        return unit_of_parameter(fsdp_trace_about(verdict->theirs),
                                 record->name);
    }
}
