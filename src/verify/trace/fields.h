/** \file fields.h  Floor 6, verify: members of trace.json, each of one type.
 *
 *  `key` of `object` (NULL: no members).  A member that is null is as one that is
 *  missing.  The first thing that is wrong is kept as the status; after it
 *  nothing is read any more.  Not collective.
 */
#ifndef FSDP_VERIFY_TRACE_FIELDS_H
#define FSDP_VERIFY_TRACE_FIELDS_H

#include "base/json.h"
#include "fsdp/dtype.h"

typedef struct trace_fields {
    const char *name; /**< of the file, for messages                         */
    fsdp_status_t status;
} trace_fields_t;

/** Keeps the error "KEY must be MUST", if it is the first. */
void trace_field_bad(trace_fields_t *r, const char *key, const char *must);

/** Of any kind; NULL: missing. */
const fsdp_json_t *trace_field(const trace_fields_t *r,
                               const fsdp_json_t *object, const char *key);
const fsdp_json_t *trace_field_object(trace_fields_t *r,
                                      const fsdp_json_t *object,
                                      const char *key);
const fsdp_json_t *trace_field_array(trace_fields_t *r,
                                     const fsdp_json_t *object,
                                     const char *key);
/** Lives as long as the document; NULL: missing. */
const char *trace_field_text(trace_fields_t *r, const fsdp_json_t *object,
                             const char *key);
/** Missing or wrong: `other`; so the next two. */
bool trace_field_bool(trace_fields_t *r, const fsdp_json_t *object,
                      const char *key, bool other);
long trace_field_count(trace_fields_t *r, const fsdp_json_t *object,
                       const char *key, long min, long max, long other);
double trace_field_number(trace_fields_t *r, const fsdp_json_t *object,
                          const char *key, double min, double max,
                          double other);
/** Which of the words (the last is NULL); -1: missing. */
int trace_field_word(trace_fields_t *r, const fsdp_json_t *object,
                     const char *key, const char *const *words,
                     const char *must);
/** A floating type; FSDP_DTYPE_NONE: missing. */
fsdp_dtype_t trace_field_dtype(trace_fields_t *r, const fsdp_json_t *object,
                               const char *key);
/** Zeroes for the elements of an array, which the caller frees. */
void *trace_field_room(const fsdp_json_t *array, size_t size, int *count);

#endif
