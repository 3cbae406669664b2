/** \file model_case.h  A small model, its values, and files made by hand. */
#ifndef TESTS_CHECKPOINT_MODEL_CASE_H
#define TESTS_CHECKPOINT_MODEL_CASE_H

#include <stdio.h>
#include <string.h>

#include "fsdp/model_file.h"
#include "optim/given.h"

enum { SPECS = 5, MAX_BYTES = 1 << 16, LONG = 128 };

extern const given_spec_t specs[SPECS];
/** Of each of them, as a header has it: "7,4". */
extern const char *const shapes[SPECS];

/** Set by the fixture; the folder is one for all ranks. */
extern fsdp_comm_t *world;
extern fsdp_mesh_t *mesh;
extern int rank;
extern char folder[64], path[LONG];

/** The checked fixture of both suites. */
void set_up(void);
void tear_down(void);

/** Multiples of 1/8 below 16, which all floating types have. */
double value(const char *name, size_t e);
double zero(const char *name, size_t e);
/** A third of value(), which none has. */
double third(const char *name, size_t e);

size_t spec_numel(const given_spec_t *spec);
/** A model of `specs`. */
fsdp_module_t *make(fsdp_dtype_t dtype, given_cut_t cut, given_fn_t fn);
/** Has this rank `fn`, rounded to the type? */
bool has(fsdp_module_t *model, given_fn_t fn);

/** A tensor of a file made by hand.  Values are those of `values_of`, or, if
 *  `wrong`, one more. */
typedef struct hand {
    const char *name, *dtype;
    const char *shape; /**< "7,4" */
    size_t numel;
    const char *values_of;
    bool wrong;
} hand_t;

/** The model's tensors as a list, the last first, names without the prefix. */
enum { WTE = SPECS - 1, C_FC = 1 };
void hand_model(hand_t hand[SPECS + 2], const char *dtype);
/** One element as a file has it. */
void hand_put(unsigned char *out, const char *dtype, double v);
/** Rank 0 writes it to `path`.  Collective. */
void hand_write(const hand_t *hand, int count, given_fn_t fn);

#endif
