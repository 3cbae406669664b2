#include <math.h>
#include <stdio.h>

#include "fsdp/verify.h"

/* "2.08e-09, expected 4.17e-09 (8388608 ULPs apart)" */
static void
format_values(const fsdp_divergence_t *d, char *text, size_t size)
{
    if (d->our_type != d->expected_type)
        snprintf(text, size, "%s, expected %s", fsdp_dtype_name(d->our_type),
                 fsdp_dtype_name(d->expected_type));
    else if (isnan(d->ours) && !isnan(d->expected))
        snprintf(text, size, "none or nan, expected %.9g", d->expected);
    else if (isnan(d->expected) && !isnan(d->ours))
        snprintf(text, size, "%.9g, expected none or nan", d->ours);
    else if (!isfinite(d->ulps))
        snprintf(text, size, "%.9g, expected %.9g", d->ours, d->expected);
    else
        snprintf(text, size, "%.9g, expected %.9g (%.0f ULP%s apart)", d->ours,
                 d->expected, d->ulps, d->ulps == 1 ? "" : "s");
}

void
fsdp_divergence_format(const fsdp_divergence_t *divergence, char *text,
                       size_t size)
{
    const fsdp_divergence_t *d = divergence;
    char what[40] = "", name[112] = "", unit[112] = "", micro[40] = "",
         values[128];
    if (!d->found) {
        snprintf(text, size, "no divergence");
        return;
    }
    if (d->what[0] != '\0')
        snprintf(what, sizeof what, " (%s)", d->what);
    if (d->name[0] != '\0')
        snprintf(name, sizeof name, " of %s", d->name);
    if (d->unit[0] != '\0')
        snprintf(unit, sizeof unit, ", unit %s", d->unit);
    if (d->micro >= 0)
        snprintf(micro, sizeof micro, ", micro-batch %d", d->micro);
    format_values(d, values, sizeof values);
    snprintf(text, size,
             "first divergence: step %ld, %s%s%s%s%s, element %zu, rank %d: %s",
             d->step, d->phase, what, name, unit, micro, d->element, d->rank,
             values);
}
