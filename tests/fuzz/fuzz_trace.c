/* A trace of one step and one rank: trace.json, the rank's JSON, its tensors. */

#include <stdlib.h>

#include "fsdp/trace.h"
#include "fuzz.h"

static void
read_all(fsdp_trace_t *trace)
{
    for (size_t i = 0; i < fsdp_trace_count(trace); i++) {
        const fsdp_trace_record_t *r = fsdp_trace_record(trace, i);
        FUZZ_CHECK(fsdp_trace_index(trace, r) == i);
        FUZZ_CHECK(
            fsdp_trace_find(trace, r->step, r->phase, r->micro, r->name) == r);
        if (r->numel > 1 << 20)
            continue; /* a whole may be larger than its pieces */
        double *values = malloc((r->numel + 1) * sizeof *values);
        int *owner = malloc((r->numel + 1) * sizeof *owner);
        fsdp_trace_conflict_t conflict;
        FUZZ_CHECK(fsdp_trace_read(trace, r, values, owner, &conflict) ==
                   FSDP_OK);
        FUZZ_CHECK(!conflict.found);
        free(owner);
        free(values);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const name[] = {"trace.json",
                                       "step-000001/rank-00000.json",
                                       "step-000001/rank-00000.safetensors"};
    for (int i = 0; i < 3; i++) {
        fuzz_part_t part = fuzz_next_part(&data, &size);
        fuzz_put(name[i], part.data, part.size);
    }
    fsdp_trace_t *trace = NULL;
    fsdp_status_t status = fsdp_trace_open(fuzz_folder(), &trace);
    FUZZ_CHECK((status == FSDP_OK) == (trace != NULL));
    if (trace != NULL)
        read_all(trace);
    fsdp_trace_close(&trace);
    return 0;
}
