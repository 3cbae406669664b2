/** \file golden.h  The values that PyTorch made: data/golden. */
#ifndef TESTS_NN_GOLDEN_H
#define TESTS_NN_GOLDEN_H

#include <stdlib.h>

#include "fsdp/memory.h"
#include "fsdp/safetensors.h"

/** A file of data/golden.  Ends the program if it cannot be read. */
static inline fsdp_safetensors_t *
golden_open(const char *file)
{
    const char *folder = getenv("FSDP_DATA_DIR");
    fsdp_safetensors_t *golden = NULL;
    char *path = fsdp_format("%s/golden/%s.safetensors",
                             folder != NULL ? folder : "data", file);
    FSDP_CHECK(fsdp_safetensors_open(path, &golden) == FSDP_OK, "%s",
               fsdp_error_message());
    fsdp_free(path);
    return golden;
}

static inline const fsdp_safetensors_entry_t *
golden_entry(const fsdp_safetensors_t *golden, const char *name)
{
    const fsdp_safetensors_entry_t *entry = fsdp_safetensors_find(golden, name);
    FSDP_CHECK(entry != NULL, "there is no golden %s", name);
    return entry;
}

/** All of a tensor; the caller frees it. */
static inline void *
golden_read(const fsdp_safetensors_t *golden, const char *name,
            fsdp_dtype_t dtype)
{
    const fsdp_safetensors_entry_t *entry = golden_entry(golden, name);
    FSDP_CHECK(entry->dtype == dtype, "golden %s is %s", name,
               fsdp_dtype_name(entry->dtype));
    void *data =
        fsdp_alloc(FSDP_MEM_OTHER, entry->numel * fsdp_dtype_size(dtype));
    FSDP_CHECK(fsdp_safetensors_read(golden, entry, 0, entry->numel, data) ==
                   FSDP_OK,
               "%s", fsdp_error_message());
    return data;
}

/** The first element of a float64 tensor. */
static inline double
golden_number(const fsdp_safetensors_t *golden, const char *name)
{
    double *data = golden_read(golden, name, FSDP_FP64), first = data[0];
    fsdp_free(data);
    return first;
}

#endif
