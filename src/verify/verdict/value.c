/* Reading, notes, and room for what is expected. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "verify/verdict/internal.h"

double *
verdict_read(judging_t *j, fsdp_trace_t *trace, const record_t *record)
{
    if (j->status != FSDP_OK || record == NULL)
        return NULL;
    double *values = fsdp_alloc(FSDP_MEM_OTHER, record->numel * sizeof *values);
    fsdp_status_t status = fsdp_trace_read(trace, record, values, NULL, NULL);
    if (status == FSDP_OK)
        return values;
    j->status = status;
    fsdp_free(values);
    return NULL;
}

const record_t *
verdict_theirs(const judging_t *j, const record_t *like, long step,
               fsdp_trace_phase_t phase, int micro)
{
    const record_t *found =
        fsdp_trace_find(j->theirs, step, phase, micro, like->name);
    return found != NULL && found->numel == like->numel ? found : NULL;
}

void
expected_make(expected_t *expected, const record_t *record, const char *rule)
{
    size_t bytes = record->numel * sizeof(double);
    *expected = (expected_t){.value = fsdp_alloc(FSDP_MEM_OTHER, bytes),
                             .bound = fsdp_calloc(FSDP_MEM_OTHER, bytes),
                             .rule = rule};
}

void
expected_free(expected_t *expected)
{
    fsdp_free(expected->value);
    fsdp_free(expected->bound);
    *expected = (expected_t){0};
}

void
verdict_note(judging_t *j, const char *format, ...)
{
    char text[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t n = (size_t)j->verdict.num_notes;
    char **list = fsdp_alloc(FSDP_MEM_OTHER, (n + 1) * sizeof *list);
    if (n > 0)
        memcpy(list, j->note, n * sizeof *list);
    list[n] = fsdp_strdup(text);
    fsdp_free(j->note);
    j->note = list;
    j->verdict.note = (const char *const *)list;
    j->verdict.num_notes = (int)n + 1;
}
