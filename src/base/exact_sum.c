#include "fsdp/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/vmath.h"

/* A double is m 2^(e - 1075) with m < 2^53 and biased exponent e, 1 for
 * subnormals; its lowest bit lies `FIRST_BIT + e` bits above that of limb 0. */
enum {
    LIMB_BITS = 32,
    LOWEST = -1074 - LIMB_BITS, /* exponent of limb 0's lowest bit */
    FIRST_BIT = -1075 - LOWEST
};

static const uint64_t limb_mask = 0xffffffff;
static const uint64_t fraction_mask = 0x000fffffffffffff;
static const uint64_t hidden_bit = 0x0010000000000000;

/* An addition changes two limbs, by less than 2^32 and 2^52.  With `pending`
 * additions since the last carry, which itself counts as one, every limb is at
 * most pending (2^52 + 2^32); this many keep it, and a carry into it, below
 * 2^63. */
enum { MAX_PENDING = 2047 };

void
fsdp_exact_sum_clear(fsdp_exact_sum_t *sum)
{
    memset(sum, 0, sizeof *sum);
}

void
fsdp_exact_sum_carry(fsdp_exact_sum_t *sum)
{
    const int64_t half = (int64_t)1 << (LIMB_BITS - 1);
    for (int i = 0; i < FSDP_EXACT_LIMBS - 1; i++) {
        int64_t carry = (sum->limb[i] + half) >> LIMB_BITS;
        sum->limb[i] -= carry * (2 * half);
        sum->limb[i + 1] += carry;
    }
    sum->pending = 1;
}

/* Adds sign m 2^(place + LOWEST), where m < 2^53 and sign is 0 or, for minus,
 * -1.  The caller counts `pending`. */
static inline void
add_at(int64_t *limb, uint64_t m, unsigned place, int64_t sign)
{
    unsigned i = place / LIMB_BITS, shift = place % LIMB_BITS;
    int64_t low = (int64_t)(m << shift & limb_mask);
    int64_t high = (int64_t)(m >> (LIMB_BITS - shift));
    limb[i] += (low ^ sign) - sign;
    limb[i + 1] += (high ^ sign) - sign;
}

/* Makes room for `n` more additions. */
static inline void
reserve(fsdp_exact_sum_t *sum, int n)
{
    if (sum->pending > MAX_PENDING - n)
        fsdp_exact_sum_carry(sum);
    sum->pending += n;
}

/* Counts a term that is no number. */
static void
add_special(fsdp_exact_sum_t *sum, double term)
{
    sum->nan += isnan(term) != 0;
    sum->plus_inf += term > 0.0;
    sum->minus_inf += term < 0.0;
}

static inline bool
is_special(uint64_t bits)
{
    return (bits >> 52 & 0x7ff) == 0x7ff;
}

static inline void
add_finite(int64_t *limb, uint64_t bits)
{
    uint64_t e = bits >> 52 & 0x7ff, normal = e != 0;
    uint64_t m = (bits & fraction_mask) | normal << 52;
    add_at(limb, m, (unsigned)(FIRST_BIT + e + !normal),
           -(int64_t)(bits >> 63));
}

void
fsdp_exact_sum_add(fsdp_exact_sum_t *sum, double term)
{
    uint64_t bits = fsdp_bits_of_f64(term);
    if (is_special(bits)) {
        add_special(sum, term);
        return;
    }
    reserve(sum, 1);
    add_finite(sum->limb, bits);
}

/* m^2 = high 2^53 + low, each below 2^53, at its place. */
static void
add_product(fsdp_exact_sum_t *sum, unsigned __int128 product, unsigned place)
{
    const uint64_t mask = fraction_mask | hidden_bit;
    reserve(sum, 2);
    add_at(sum->limb, (uint64_t)product & mask, place, 0);
    add_at(sum->limb, (uint64_t)(product >> 53), place + 53, 0);
}

void
fsdp_exact_sum_add_square(fsdp_exact_sum_t *sum, double x)
{
    double square = x * x;
    if (is_special(fsdp_bits_of_f64(square))) {
        add_special(sum, square);
        return;
    }
    uint64_t bits = fsdp_bits_of_f64(x) & ~((uint64_t)1 << 63);
    uint64_t e = bits >> 52, m = bits & fraction_mask;
    m = e != 0 ? m | hidden_bit : m;
    unsigned __int128 product = (unsigned __int128)m * m;
    int place = 2 * ((int)(e != 0 ? e : 1) - 1075) - LOWEST;
    if (place < -106)
        return; /* all of it is dropped */
    if (place < 0) {
        product >>= -place;
        place = 0;
    }
    add_product(sum, product, (unsigned)place);
}

void
fsdp_exact_sum_merge(fsdp_exact_sum_t *sum, const fsdp_exact_sum_t *other)
{
    fsdp_exact_sum_t carried = *other;
    fsdp_exact_sum_carry(&carried);
    fsdp_exact_sum_carry(sum);
    for (int i = 0; i < FSDP_EXACT_LIMBS; i++)
        sum->limb[i] += carried.limb[i];
    sum->nan += carried.nan;
    sum->plus_inf += carried.plus_inf;
    sum->minus_inf += carried.minus_inf;
    sum->pending += carried.pending;
}
