#include "fsdp/random.h"

#include <math.h>
#include <stdbool.h>

#include "base/philox.h"
#include "base/vmath.h"

void
fsdp_philox4x32_10(const uint32_t counter[4], const uint32_t key[2],
                   uint32_t out[4])
{
    philox4x32_10(counter, key, out);
}

void
fsdp_random_block(uint64_t seed, fsdp_random_domain_t domain, uint32_t a,
                  uint64_t b, uint64_t index, uint32_t out[4])
{
    philox_block(seed, domain, a, b, index, out);
}

uint32_t
fsdp_random_word(uint64_t seed, fsdp_random_domain_t domain, uint32_t a,
                 uint64_t b, uint64_t element)
{
    uint32_t block[4];
    fsdp_random_block(seed, domain, a, b, element / 4, block);
    return block[element % 4];
}

double
fsdp_random_uniform(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

/* The value at x of a polynomial of degree 7. */
static double
polynomial7(const double c[8], double x)
{
    double y = c[7];
    for (int i = 6; i >= 0; i--)
        y = y * x + c[i];
    return y;
}

typedef struct ratio {
    double numerator[8], denominator[8];
} ratio_t;

static double
ratio_at(const ratio_t *ratio, double x)
{
    return polynomial7(ratio->numerator, x) /
           polynomial7(ratio->denominator, x);
}

/* Wichura's coefficients: the middle, |p - 1/2| <= 0.425; the tails for
 * r = sqrt(-log(smaller of p, 1 - p)) up to 5; the rest. */
static const ratio_t middle = {
    {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3},
    {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2,
     5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
     2.8729085735721942674e4, 5.2264952788528545610e3},
};
static const ratio_t tail = {
    {1.42343711074968357734e0, 4.63033784615654529590e0,
     5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4},
    {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
     6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9},
};

/* A word's uniform number is at least 2^-33, for which r is 4.8: Wichura's
 * third ratio, for r > 5, is never asked for. */
double
fsdp_random_normal(uint32_t word)
{
    double p = fsdp_random_uniform(word), q = p - 0.5;
    if (fabs(q) <= 0.425)
        return q * ratio_at(&middle, 0.180625 - q * q);
    double smaller = q < 0.0 ? p : 1.0 - p;
    double value = ratio_at(&tail, sqrt(-fsdp_log(smaller)) - 1.6);
    return q < 0.0 ? -value : value;
}

uint64_t
fsdp_hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return hash;
}
