/* A key and its value at once. */

#include <stdio.h>

#include "base/json.h"

void
fsdp_json_put_string(fsdp_json_writer_t *writer, const char *key,
                     const char *text)
{
    fsdp_json_key(writer, key);
    fsdp_json_string(writer, text);
}

void
fsdp_json_put_integer(fsdp_json_writer_t *writer, const char *key,
                      int64_t value)
{
    fsdp_json_key(writer, key);
    fsdp_json_integer(writer, value);
}

void
fsdp_json_put_double(fsdp_json_writer_t *writer, const char *key, double value)
{
    fsdp_json_key(writer, key);
    fsdp_json_double(writer, value);
}

void
fsdp_json_put_bool(fsdp_json_writer_t *writer, const char *key, bool value)
{
    fsdp_json_key(writer, key);
    fsdp_json_bool(writer, value);
}

void
fsdp_json_put_hash(fsdp_json_writer_t *writer, const char *key, uint64_t hash)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016jx", (uintmax_t)hash);
    fsdp_json_put_string(writer, key, digits);
}
