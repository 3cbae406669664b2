/* Single values of other ranks come to rank 0. */

#include "fsdp/memory.h"
#include "verify/internal.h"

double *
verifier_gather_value(fsdp_verifier_t *verifier, const char *what, double value)
{
    double *all = verifier->rank == 0
                      ? fsdp_alloc(FSDP_MEM_BASELINE,
                                   (size_t)verifier->size * sizeof *all)
                      : NULL;
    fsdp_gather(verifier->comm, what, FSDP_FP64, &value, all, 1, 0);
    return all;
}

void
verifier_compare_replicas(fsdp_verifier_t *verifier, const char *phase,
                          double value, double expected)
{
    double *all = verifier_gather_value(verifier, phase, value);
    if (verifier->rank != 0)
        return;
    place_t place = {.phase = phase, .micro = -1, .ulp_dtype = verifier->dtype};
    verifier_compare(verifier, &place, FSDP_FP64, all, &expected, 1);
    place.phase = "replica";
    place.what = phase;
    for (place.rank = 1; place.rank < verifier->size; place.rank++)
        verifier_compare(verifier, &place, FSDP_FP64, all + place.rank, all, 1);
    fsdp_free(all);
}

bool *
verifier_some_rank_has(fsdp_verifier_t *verifier, thing_of_t thing, int i)
{
    size_t n = (size_t)verifier->num_params;
    int32_t *flag = fsdp_alloc(FSDP_MEM_BASELINE, n * sizeof *flag);
    bool *some = fsdp_alloc(FSDP_MEM_BASELINE, n * sizeof *some);
    for (size_t p = 0; p < n; p++)
        flag[p] = thing(verifier, &verifier->param[p], i) != NULL;
    fsdp_all_reduce(verifier->comm, "what there is", FSDP_INT32, FSDP_MAX,
                    FSDP_ORDER_TREE, flag, n);
    for (size_t p = 0; p < n; p++)
        some[p] = flag[p] != 0;
    fsdp_free(flag);
    return some;
}
