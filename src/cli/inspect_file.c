/* What a file holds. */
#include <inttypes.h>
#include <stdio.h>

#include "checkpoint/weights.h"
#include "cli/inspect.h"

static void
format_shape(const fsdp_safetensors_entry_t *entry, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < entry->ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64,
                                 d > 0 ? ", " : "", entry->shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

/* Bytes that a terminal would take for commands are shown as "?". */
static void
print_text(const char *text)
{
    for (; *text != '\0'; text++)
        putchar((unsigned char)*text < ' ' || *text == 127 ? '?' : *text);
}

static void
print_entry(const fsdp_safetensors_entry_t *entry)
{
    char shape[200];
    format_shape(entry, shape, sizeof shape);
    printf("    %-9s %-20s %14" PRIu64 "  ", fsdp_dtype_name(entry->dtype),
           shape, entry->end - entry->begin);
    print_text(entry->name);
    printf("\n");
}

static void
print_metadata(const fsdp_safetensors_t *file)
{
    const char *key, *value;
    for (size_t i = 0; fsdp_safetensors_metadata_pair(file, i, &key, &value);
         i++) {
        printf(i == 0 ? "metadata:\n    " : "    ");
        print_text(key);
        printf(" = ");
        print_text(value);
        printf("\n");
    }
}

static void
print_safetensors(const char *path, const fsdp_safetensors_t *file)
{
    uint64_t elements = 0, bytes = 0;
    size_t count = fsdp_safetensors_count(file);
    printf("%s\n", path);
    print_metadata(file);
    printf("tensors:  type, shape, bytes, name\n");
    for (size_t i = 0; i < count; i++) {
        const fsdp_safetensors_entry_t *e = fsdp_safetensors_entry(file, i);
        print_entry(e);
        elements += e->numel;
        bytes += e->end - e->begin;
    }
    printf("%zu tensors, %" PRIu64 " elements, %" PRIu64 " bytes\n", count,
           elements, bytes);
}

fsdp_status_t
inspect_file(const char *path)
{
    fsdp_weights_t *weights;
    fsdp_status_t status = fsdp_weights_open(path, &weights);
    if (status != FSDP_OK)
        return status;
    for (size_t f = 0; f < weights->count; f++)
        print_safetensors(weights->path[f], weights->file[f]);
    fsdp_weights_close(&weights);
    return FSDP_OK;
}
