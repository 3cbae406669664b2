/* The one rounding of an exact sum. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/vmath.h"
#include "fsdp/exact_sum.h"

/* The absolute value of a sum as digits of 32 bits; digit i is that of limb
 * i.  The top limb may overflow into one digit more. */
enum { NUM_DIGITS = FSDP_EXACT_LIMBS + 1 };

typedef struct magnitude {
    bool negative;
    uint32_t digit[NUM_DIGITS];
} magnitude_t;

/* The carry out of the last digit is 0, or -1 if the number is negative. */
static int64_t
to_digits(const int64_t *limb, int64_t sign, uint32_t *digit)
{
    int64_t carry = 0;
    for (int i = 0; i < FSDP_EXACT_LIMBS; i++) {
        int64_t sum = sign * limb[i] + carry;
        digit[i] = (uint32_t)sum;
        carry = sum >> 32;
    }
    digit[FSDP_EXACT_LIMBS] = (uint32_t)carry;
    return carry >> 32;
}

static magnitude_t
magnitude_of(const fsdp_exact_sum_t *sum)
{
    magnitude_t magnitude;
    fsdp_exact_sum_t carried = *sum;
    fsdp_exact_sum_carry(&carried);
    magnitude.negative = to_digits(carried.limb, 1, magnitude.digit) < 0;
    if (magnitude.negative)
        to_digits(carried.limb, -1, magnitude.digit);
    return magnitude;
}

/* The bits from `lowest` on, as a number below 2^53, and what lies below them
 * as two bits: the one next to `lowest`, and whether there are any others. */
typedef struct window {
    uint64_t bits;
    bool next, rest;
} window_t;

static bool
bit_at(const uint32_t *digit, int place)
{
    return place >= 0 && (digit[place / 32] >> place % 32 & 1) != 0;
}

static window_t
window_at(const uint32_t *digit, int top, int lowest)
{
    window_t window = {0, bit_at(digit, lowest - 1), false};
    for (int place = top; place >= lowest; place--)
        window.bits = window.bits << 1 | bit_at(digit, place);
    for (int place = 0; place < lowest - 1 && !window.rest; place++)
        window.rest = bit_at(digit, place);
    return window;
}

/* Place 0 is 2^-1106; that of the smallest double is 32. */
static double
round_digits(const uint32_t *digit)
{
    int i = NUM_DIGITS - 1;
    while (i >= 0 && digit[i] == 0)
        i--;
    if (i < 0)
        return 0.0;
    int top = 32 * i + 31 - __builtin_clz(digit[i]);
    int lowest = top - 52 > 32 ? top - 52 : 32;
    window_t window = window_at(digit, top, lowest);
    uint64_t fraction = window.bits;
    if (window.next && (window.rest || (fraction & 1) != 0))
        fraction++;

    /* The hidden bit, and a carry into it, raise the exponent by addition. */
    uint64_t exponent = (uint64_t)(lowest - 32);
    if (exponent > 2045)
        return INFINITY;
    return fsdp_f64_of_bits((exponent << 52) + fraction);
}

double
fsdp_exact_sum_round(const fsdp_exact_sum_t *sum)
{
    if (sum->nan > 0 || (sum->plus_inf > 0 && sum->minus_inf > 0))
        return NAN;
    if (sum->plus_inf > 0 || sum->minus_inf > 0)
        return sum->plus_inf > 0 ? INFINITY : -INFINITY;
    magnitude_t magnitude = magnitude_of(sum);
    double value = round_digits(magnitude.digit);
    return magnitude.negative ? -value : value;
}
