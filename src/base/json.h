/** \file json.h  Floor 0, base: reading and writing JSON (RFC 8259).
 *
 *  Reading is strict: duplicate keys, a byte order mark, text that is not UTF-8,
 *  anything after the value, NaN, and nesting of more than 2,048 levels are
 *  errors.  Writing appends to one growing string.  Neither depends on the
 *  locale.
 */
#ifndef FSDP_BASE_JSON_H
#define FSDP_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsdp/status.h"

/** A value of a document that was read.  Opaque. */
typedef struct fsdp_json fsdp_json_t;

typedef enum fsdp_json_kind {
    FSDP_JSON_NULL,
    FSDP_JSON_BOOL,
    FSDP_JSON_INTEGER, /**< a number without fraction and exponent, in 64 bits */
    FSDP_JSON_REAL,
    FSDP_JSON_STRING,
    FSDP_JSON_ARRAY,
    FSDP_JSON_OBJECT
} fsdp_json_kind_t;

/** Reads a document of `length` bytes, which need no 0 behind them.  On success
 *  `*document` is to be given to fsdp_json_destroy(); else it is NULL, and the
 *  message (FSDP_ERR_INPUT) begins with `name`, line and byte. */
fsdp_status_t fsdp_json_parse(const char *name, const char *text, size_t length,
                              fsdp_json_t **document);
/** Frees a document and all values in it; sets the pointer to NULL. */
void fsdp_json_destroy(fsdp_json_t **document);

/* All values below are borrowed from their document; a NULL value is allowed,
 * and is of no kind, so that look-ups can be chained. */

bool fsdp_json_is(const fsdp_json_t *value, fsdp_json_kind_t kind);
/** "an integer" for instance, for messages; "nothing" for NULL. */
const char *fsdp_json_kind_name(const fsdp_json_t *value);

/** The value, if it is of the kind; else false, and `*result` is left alone.
 *  An integer is a number too, rounded to the nearest double. */
bool fsdp_json_get_bool(const fsdp_json_t *value, bool *result);
bool fsdp_json_get_integer(const fsdp_json_t *value, int64_t *result);
bool fsdp_json_get_number(const fsdp_json_t *value, double *result);
/** A whole number from 0 to `max`. */
bool fsdp_json_get_count(const fsdp_json_t *value, int64_t max,
                         uint64_t *result);
/** The string, which ends with the value's document; NULL if it is none.  It
 *  holds no zero byte. */
const char *fsdp_json_get_string(const fsdp_json_t *value);
/** Sixteen hexadecimal digits. */
bool fsdp_json_get_hash(const fsdp_json_t *value, uint64_t *hash);

/** Elements of an array or members of an object; 0 for anything else. */
size_t fsdp_json_size(const fsdp_json_t *value);
/** Element `i` of an array; NULL if there is none. */
const fsdp_json_t *fsdp_json_at(const fsdp_json_t *array, size_t i);
/** The member called `key` of an object; NULL if there is none. */
const fsdp_json_t *fsdp_json_member(const fsdp_json_t *object, const char *key);

/** The members of an object in the order of the text:
 *      for (fsdp_json_iter_t i = fsdp_json_first(object); i.key != NULL;
 *           fsdp_json_next(&i))
 */
typedef struct fsdp_json_iter {
    const char *key; /**< NULL at the end */
    const fsdp_json_t *value;
    const fsdp_json_t *object;
    void *place;
} fsdp_json_iter_t;

fsdp_json_iter_t fsdp_json_first(const fsdp_json_t *object);
void fsdp_json_next(fsdp_json_iter_t *iter);

/** A text that grows.  Misuse (a member without a key, a bracket that closes
 *  nothing) is a broken invariant. */
typedef struct fsdp_json_writer fsdp_json_writer_t;

fsdp_json_writer_t *fsdp_json_writer_create(void);
void fsdp_json_writer_destroy(fsdp_json_writer_t **writer);
/** Empties the text, keeping its memory. */
void fsdp_json_writer_reset(fsdp_json_writer_t *writer);
/** The text so far, ended by a 0; valid until the next call. */
const char *fsdp_json_writer_text(const fsdp_json_writer_t *writer);
size_t fsdp_json_writer_length(const fsdp_json_writer_t *writer);

void fsdp_json_open_object(fsdp_json_writer_t *writer);
void fsdp_json_close_object(fsdp_json_writer_t *writer);
void fsdp_json_open_array(fsdp_json_writer_t *writer);
void fsdp_json_close_array(fsdp_json_writer_t *writer);
/** The key of the member that is written next. */
void fsdp_json_key(fsdp_json_writer_t *writer, const char *key);

void fsdp_json_null(fsdp_json_writer_t *writer);
void fsdp_json_bool(fsdp_json_writer_t *writer, bool value);
void fsdp_json_integer(fsdp_json_writer_t *writer, int64_t value);
/** The nearest decimal with the fewest digits that reads back as the same double,
 *  or float; NaN and infinities, which JSON does not have, as null. */
void fsdp_json_double(fsdp_json_writer_t *writer, double value);
void fsdp_json_float(fsdp_json_writer_t *writer, float value);
/** NULL gives null.  Bytes that are not UTF-8 are written as U+FFFD, so that
 *  any text gives valid JSON. */
void fsdp_json_string(fsdp_json_writer_t *writer, const char *text);
/** The same for `length` bytes, zeros among them. */
void fsdp_json_string_n(fsdp_json_writer_t *writer, const char *text,
                        size_t length);

/** A member of an object: its key and its value. */
void fsdp_json_put_string(fsdp_json_writer_t *writer, const char *key,
                          const char *text);
void fsdp_json_put_integer(fsdp_json_writer_t *writer, const char *key,
                           int64_t value);
void fsdp_json_put_double(fsdp_json_writer_t *writer, const char *key,
                          double value);
void fsdp_json_put_bool(fsdp_json_writer_t *writer, const char *key,
                        bool value);
/** Sixteen hexadecimal digits. */
void fsdp_json_put_hash(fsdp_json_writer_t *writer, const char *key,
                        uint64_t hash);

#endif
