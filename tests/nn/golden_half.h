/** \file golden_half.h  What PyTorch made of bfloat16: half.safetensors. */
#ifndef TESTS_NN_GOLDEN_HALF_H
#define TESTS_NN_GOLDEN_HALF_H

#include "nn/golden.h"
#include "nn/half_bounds.h"
#include "twin/half.h"

static fsdp_safetensors_t *golden;

static inline double *
read(const char *of, const char *part)
{
    char *name = fsdp_format("%s.%s", of, part);
    double *data = golden_read(golden, name, FSDP_FP64);
    fsdp_free(name);
    return data;
}

static inline size_t
numel_of(const char *of, const char *part)
{
    char *name = fsdp_format("%s.%s", of, part);
    size_t n = golden_entry(golden, name)->numel;
    fsdp_free(name);
    return n;
}

/* `got` is in `ours`, PyTorch's `of.part` in `theirs`. */
static inline bool
both(const char *of, const char *part, const double *got, const bounded_t *ours,
     const bounded_t *theirs)
{
    double *want = read(of, part);
    size_t n = numel_of(of, part);
    bool good = true;
    for (size_t i = 0; i < n && good; i++) {
        good = half_is(FSDP_BF16, got[i], ours[i]) &&
               half_is(FSDP_BF16, want[i], theirs[i]);
        if (!good)
            fprintf(stderr,
                    "%s.%s, element %zu: %.9g in %.9g +- %g, PyTorch's %.9g "
                    "+- %g\n",
                    of, part, i, got[i], ours[i].v, ours[i].e, want[i],
                    theirs[i].e);
    }
    fsdp_free(want);
    return good;
}

#endif
