#include "fsdp/memory.h"
#include "fsdp/verify.h"
#include "verify/value.h"

/* One level of the tree in place: pairs become their sums, a last odd one goes
 * up as it is.  Returns how many are left. */
static int
add_pairs(double *x, int count, fsdp_dtype_t dtype)
{
    for (int i = 0; i < count / 2; i++)
        x[i] = value_round(dtype, x[2 * i] + x[2 * i + 1]);
    if (count % 2 == 1)
        x[count / 2] = x[count - 1];
    return (count + 1) / 2;
}

double
fsdp_mean_loss(const double *losses, int count, fsdp_dtype_t dtype,
               fsdp_reduce_order_t order)
{
    FSDP_CHECK(count > 0, "the mean of %d losses", count);
    double *x = fsdp_alloc(FSDP_MEM_OTHER, (size_t)count * sizeof *x);
    for (int i = 0; i < count; i++)
        x[i] = value_round(dtype, losses[i]);
    if (order == FSDP_ORDER_TREE)
        for (int left = count; left > 1;)
            left = add_pairs(x, left, dtype);
    else
        for (int i = 1; i < count; i++)
            x[0] = value_round(dtype, x[0] + x[i]);
    double mean = value_round(dtype, x[0] / value_round(dtype, count));
    fsdp_free(x);
    return mean;
}
