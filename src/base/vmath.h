/** \file vmath.h  Floor 0, base: exp, log, tanh, erf and 1/sqrt.
 *
 *  Each is a short straight line of additions, multiplications, divisions and
 *  selections, so the compiler vectorises a loop over it; and since nothing is
 *  fused (-ffp-contract=off) or looked up, an element has the same bits on
 *  every machine, at any vector width, alone or in a loop.  libm promises none
 *  of this.
 *
 *  Within 2 ULP of the correctly rounded value for every argument, subnormal
 *  results included; NaN gives NaN, infinities and zeros give what C's Annex F
 *  says.  The rounding mode is to nearest.
 */
#ifndef FSDP_BASE_VMATH_H
#define FSDP_BASE_VMATH_H

#include "base/vmath_f32.h"
#include "base/vmath_f64.h"

#endif
