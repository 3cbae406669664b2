/* The numbers that bounds are made of. */

#include <math.h>

#include "verify/value.h"
#include "verify/verdict/internal.h"

double
verdict_gamma(double k, double u)
{
    return k * u < 1 ? k * u / (1 - k * u) : (double)INFINITY;
}

/* N. Higham and T. Mary, A new approach to probabilistic rounding error analysis
 * (2019), theorem 2.4: |theta_k| <= exp(l sqrt(k) u + k u^2 / (1 - u)) - 1 but
 * for a probability of 2 exp(-l^2 (1 - u)^2 / 2), here over n sums. */
double
verdict_gamma_random(double k, double u, double n)
{
    double l = sqrt(2 * log(2 * fmax(n, 1) / VERDICT_FAILURE)) / (1 - u);
    double random = expm1(l * sqrt(k) * u + k * u * u / (1 - u));
    return fmin(random, verdict_gamma(k, u));
}

/* P(|T| > t) for an even number of degrees of freedom: with cos^2 = f / (f + t^2)
 * it is sin times the sum of (2k - 1)!! / (2k)!! cos^2k over k >= f / 2, whose
 * terms are all positive, so that small probabilities lose nothing. */
static double
student_tail(double t, long freedom)
{
    double f = (double)freedom, cos2 = f / (f + t * t);
    double sine = t / sqrt(f + t * t), term = 1, sum = 0;
    long k = 0;
    for (; k < freedom / 2; k++)
        term *= (2 * (double)k + 1) / (2 * (double)k + 2) * cos2;
    for (; term > 1e-18 * sum && k < 10000000; k++) {
        sum += term;
        term *= (2 * (double)k + 1) / (2 * (double)k + 2) * cos2;
    }
    return sine * sum;
}

double
verdict_student(double p, double freedom)
{
    long even = 2 * (long)(fmin(freedom, 2000) / 2);
    double low = 1, high = 1;
    if (even < 2)
        return INFINITY;
    while (student_tail(high, even) > p && high < 1e12)
        high *= 2;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        *(student_tail(middle, even) > p ? &low : &high) = middle;
    }
    return high;
}

double
verdict_ulps(fsdp_dtype_t dtype, double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    if (!isfinite(a) || !isfinite(b))
        return INFINITY;
    int exponent;
    frexp(b != 0 ? b : a, &exponent); /* |b| in [2^(e-1), 2^e) */
    double ulp = ldexp(value_roundoff(dtype), exponent);
    return fabs(a - b) / fmax(ulp, value_smallest(dtype));
}

double
verdict_ratio(double x, double expected, double bound)
{
    if (x == expected || (isnan(x) && isnan(expected)))
        return 0;
    if (!isfinite(x) || !isfinite(expected))
        return INFINITY;
    double d = fabs(x - expected);
    return d == 0 ? 0 : bound > 0 ? d / bound : (double)INFINITY;
}

/* The sum of n positive terms, each a product or a magnitude, its root, and norms
 * of norms over parameters and ranks, each rounded to the gradients' type. */
double
verdict_error_of_norm(double numel, int parameters, int ranks,
                      fsdp_dtype_t dtype)
{
    double wide = value_roundoff(dtype == FSDP_FP64 ? FSDP_FP64 : FSDP_FP32);
    double sums = verdict_gamma_random(numel + 1, wide, 1);
    double rest = 6.0 + parameters + ranks;
    return sums + verdict_gamma_random(rest, value_roundoff(dtype), 1);
}
