#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "fsdp/status.h"
#include "fsdp/tensor.h"
#include "tensor/clones.h"
#include "tensor/threads/blocks.h"
#include "tensor/threads/parallel.h"

/* Every conversion goes through float, PART elements at a time: each type but
 * double is exact in it, and a double on its way to a 16-bit type is rounded to
 * odd, so that the second rounding is the only one that shows. */
enum { PART = 512 };

typedef struct conversion {
    fsdp_dtype_t from, to;
    const char *in;
    char *out;
} conversion_t;

FSDP_CLONES static void
to_float(fsdp_dtype_t from, const void *in, bool to_odd, float *out, size_t n)
{
    switch (from) {
    case FSDP_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = fsdp_bf16_to_float(((const uint16_t *)in)[i]);
        break;
    case FSDP_FP16:
        for (size_t i = 0; i < n; i++)
            out[i] = fsdp_fp16_to_float(((const uint16_t *)in)[i]);
        break;
    case FSDP_FP64:
        for (size_t i = 0; i < n; i++)
            out[i] = to_odd ? fsdp_double_to_odd_float(((const double *)in)[i])
                            : (float)((const double *)in)[i];
        break;
    default:
        memcpy(out, in, n * sizeof *out);
    }
}

FSDP_CLONES static void
from_float(const float *in, fsdp_dtype_t to, void *out, size_t n)
{
    switch (to) {
    case FSDP_BF16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = fsdp_float_to_bf16(in[i]);
        break;
    case FSDP_FP16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = fsdp_float_to_fp16(in[i]);
        break;
    case FSDP_FP64:
        for (size_t i = 0; i < n; i++)
            ((double *)out)[i] = in[i];
        break;
    default:
        memcpy(out, in, n * sizeof *in);
    }
}

static void
convert_block(const void *context, size_t begin, size_t end)
{
    const conversion_t *c = context;
    bool to_odd = c->to == FSDP_BF16 || c->to == FSDP_FP16;
    float part[PART];
    for (size_t i = begin; i < end; i += PART) {
        size_t n = end - i < PART ? end - i : PART;
        to_float(c->from, c->in + i * fsdp_dtype_size(c->from), to_odd, part,
                 n);
        from_float(part, c->to, c->out + i * fsdp_dtype_size(c->to), n);
    }
}

void
fsdp_convert(fsdp_dtype_t from, const void *in, fsdp_dtype_t to, void *out,
             size_t n)
{
    if (from == to) {
        if (n > 0)
            memmove(out, in, n * fsdp_dtype_size(from));
        return;
    }
    FSDP_CHECK(fsdp_dtype_is_floating(from) && fsdp_dtype_is_floating(to),
               "no conversion from %s to %s", fsdp_dtype_name(from),
               fsdp_dtype_name(to));
    conversion_t c = {from, to, in, out};
    fsdp_parallel_for(n, FSDP_BLOCK_NUMEL, convert_block, &c);
}
