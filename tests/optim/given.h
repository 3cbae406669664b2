/** \file given.h  A model that computes nothing, whose gradients are given.
 *
 *  Parameter "a.b.weight" belongs to module "a.b", one without a dot to the
 *  root.  The value of element e of a parameter is a function of its name and
 *  e, so every rank knows all of them without asking.
 */
#ifndef TESTS_OPTIM_GIVEN_H
#define TESTS_OPTIM_GIVEN_H

#include "fsdp/fully_shard.h"

typedef struct given_spec {
    const char *name;
    int ndim;
    size_t shape[3];
    enum { GIVEN_USED, GIVEN_FROZEN, GIVEN_UNUSED } use;
} given_spec_t;

typedef enum given_cut {
    GIVEN_WHOLE, /**< nothing is sharded                                    */
    GIVEN_SOME,  /**< every other module is                                 */
    GIVEN_ALL,   /**< all modules and the root, each a group of its own     */
    GIVEN_CUTS
} given_cut_t;

/** Uneven shapes, dimensions 1 to 3, more ranks than rows, one parameter of
 *  the size that kernels cut into blocks, a frozen and an unused one. */
enum { GIVEN_SPECS = 10 };
extern const given_spec_t given_specs[GIVEN_SPECS];

typedef double (*given_fn_t)(const char *name, size_t element);

/** A new model, whose parameters are `value`, cut as told; each sharded module
 *  sums its gradients over the ranks without dividing.  Collective. */
fsdp_module_t *given_create(const given_spec_t *specs, int count,
                            fsdp_dtype_t dtype, fsdp_mesh_t *mesh,
                            given_cut_t cut, given_fn_t value);
/** A forward and a backward that gives every used parameter the gradient
 *  `grad`: of a sharded one rank 0 gives all and the others zeros. */
void given_backward(fsdp_module_t *model, given_fn_t grad);
/** Sets the parameters. */
void given_set(fsdp_module_t *model, given_fn_t value);

#endif
