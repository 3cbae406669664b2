/** \file place.h  Floor 6, verify: where a tensor's element is. */
#ifndef FSDP_VERIFY_VERDICT_PLACE_H
#define FSDP_VERIFY_VERDICT_PLACE_H

#include "fsdp/verdict.h"

/** The multi-index of an element of a record, [ndim]. */
void verdict_index(const fsdp_trace_record_t *record, uint64_t element,
                   uint64_t *index);
/** The unit that a record belongs to; NULL: unknown. */
const char *verdict_unit(const fsdp_verdict_t *verdict,
                         const fsdp_trace_record_t *record);

#endif
