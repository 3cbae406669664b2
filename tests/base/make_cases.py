#!/usr/bin/env python3
"""Writes cases.h, the expected values of the suites of src/base.

    python3 make_cases.py > cases.h

Needs mpmath (1.4.1 was used).  Sums are made with exact fractions, functions
with 200 bits, and both are rounded once to the nearest double; nothing of the
library is used.
"""
import random
from fractions import Fraction

import mpmath

mpmath.mp.prec = 200
random.seed(20240501)


def hexf(x):
    if x != x:
        return "NAN"
    if x in (float("inf"), float("-inf")):
        return "INFINITY" if x > 0 else "-INFINITY"
    return float(x).hex()


def nearest(x):
    """A Fraction as the nearest double, ties to even."""
    try:
        return float(x)  # Python divides the two integers correctly rounded
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def nearest_mpf(x):
    """A positive or negative mpf as the nearest double; subnormals too."""
    sign, man, exp, _ = x._mpf_
    value = Fraction(man) * Fraction(2) ** exp
    return nearest(-value if sign else value)


def random_double(low, high):
    """Any sign, 53 random bits, exponent in [low, high)."""
    m = random.getrandbits(52) / 2.0**52 + 1.0
    return random.choice((-1, 1)) * mpmath.ldexp(m, random.randrange(low, high))


def sums():
    """Lists of terms that are hard to add."""
    dmax, tiny = float.fromhex("0x1.fffffffffffffp+1023"), 2.0**-1074
    yield [1e308, 1.0, -1e308]
    yield [1.0, 2.0**-53, tiny]
    yield [1.0, 2.0**-53, -tiny]
    yield [dmax, dmax, -dmax]
    yield [dmax, dmax, -dmax, -dmax, tiny]
    yield [dmax, 2.0**970]
    yield [dmax, 2.0**970, -tiny]
    yield [-dmax, -(2.0**970)]
    yield [tiny, tiny, -(2.0**-1022)]
    yield [0.1] * 10
    yield [2.0**k for k in range(-50, 50)]
    yield [(-1.0) ** k * 2.0**k for k in range(-1074, 1024, 41)]
    for low, high in ((-1074, 1023), (-1074, -1000), (-60, 60), (900, 1024)):
        for n in (2, 3, 10, 40):
            x = [float(random_double(low, high)) for _ in range(n)]
            yield x
            # The same, all but cancelled by its own rounded negative.
            rest = nearest(sum(map(Fraction, x)))
            if abs(rest) <= dmax:
                yield x + [-rest]


def print_sums():
    terms, rows = [], []
    for x in sums():
        want = nearest(sum(map(Fraction, x)))
        rows.append(f"    {{{len(terms)}, {len(x)}, {hexf(want)}}},")
        terms += x
    print("/* Terms of all sums, one sum behind the other. */")
    print("static const double sum_terms[] = {")
    for x in terms:
        print(f"    {hexf(x)},")
    print("};\n")
    print("static const struct {\n    int first, count;\n    double want;")
    print("} sum_cases[] = {")
    print("\n".join(rows))
    print("};\n")


def print_functions():
    functions = {
        "exp": (mpmath.exp, [(-745.1, 709.7), (-1, 1), (-745.1, -708)]),
        "log": (mpmath.log, [(1e-300, 1e300), (0.5, 2), (0.99, 1.01)]),
        "tanh": (mpmath.tanh, [(-20, 20), (-1, 1), (0.6, 0.7)]),
        "erf": (mpmath.erf, [(-6, 6), (-1, 1), (0.9, 1.1)]),
        "rsqrt": (lambda x: 1 / mpmath.sqrt(x), [(1e-300, 1e300), (1, 4)]),
    }
    for name, (f, ranges) in functions.items():
        print(f"/* {name} of a double, rounded to the nearest double. */")
        print(f"static const double {name}_cases[][2] = {{")
        for low, high in ranges:
            for i in range(30):
                x = random.uniform(low, high)
                if i % 3 == 0:  # exponents of all sizes below the range's end
                    x = high * 2.0 ** -random.randrange(60)
                    x *= random.uniform(0.5, 1)
                y = nearest_mpf(f(mpmath.mpf(x)))
                print(f"    {{{hexf(x)}, {hexf(y)}}},")
        print("};\n")


def print_normals():
    """sqrt(2) erfinv(2 p - 1) at p = (word + 1/2) / 2^32."""
    words = [0, 1, 2, 3, 1000, 2**20, 2**28, 322122546, 322122547, 322122548,
             2**30, 2**31 - 1, 2**31, 2**31 + 1, 3 * 2**30, 3972844748,
             3972844749, 3972844750, 2**32 - 2, 2**32 - 1]
    words += [random.getrandbits(32) for _ in range(60)]
    print("/* Standard normal quantile of (word + 1/2) / 2^32. */")
    print("static const struct {\n    uint32_t word;\n    double want;")
    print("} normal_cases[] = {")
    for word in words:
        p = (mpmath.mpf(word) + 0.5) / 2**32
        x = mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)
        print(f"    {{{word}u, {hexf(nearest_mpf(x))}}},")
    print("};")


print("/* Made by make_cases.py.  Do not edit. */")
print("#ifndef CASES_H\n#define CASES_H\n")
print("#include <math.h>\n#include <stdint.h>\n")
print_sums()
print_functions()
print_normals()
print("\n#endif")
