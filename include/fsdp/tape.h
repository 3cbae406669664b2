/** \file tape.h  Floor 2, nn: reverse-mode differentiation.
 *
 *  PyTorch: torch.autograd.
 *
 *  Operators append a node to the tape as they run; fsdp_backward() walks the
 *  nodes from the last to the first.  The tape owns all tensors made on it.
 *  After its backward a node's outputs and saved values are freed; only tensors
 *  that no operator used (the loss) stay readable until the tape is destroyed.
 *  What is computed by fsdp_tape_checkpoint() is freed at once, and computed
 *  again in the backward (activation_checkpoint.h).
 */
#ifndef FSDP_TAPE_H
#define FSDP_TAPE_H

#include <stdint.h>

#include "fsdp/parameter.h"

typedef struct fsdp_tape fsdp_tape_t;
typedef struct fsdp_node fsdp_node_t;

enum { FSDP_MAX_VALUES = 4 };

/** Up to four tensors, the inputs or outputs of a module.  Borrowed. */
typedef struct fsdp_values {
    int count;
    fsdp_tensor_t *tensor[FSDP_MAX_VALUES];
} fsdp_values_t;

fsdp_values_t fsdp_values1(fsdp_tensor_t *a);
fsdp_values_t fsdp_values2(fsdp_tensor_t *a, fsdp_tensor_t *b);

/** What dropout needs to know, and whether there will be a backward. */
typedef struct fsdp_tape_options {
    bool grad_enabled; /**< false: PyTorch's no_grad()                        */
    bool training;     /**< false: PyTorch's eval(), no dropout               */
    uint64_t seed;
    uint32_t step;
    uint32_t first_sample; /**< number, in the step, of the batch's sample 0  */
} fsdp_tape_options_t;

/** grad_enabled and training, the rest 0. */
fsdp_tape_options_t fsdp_tape_options_default(void);
fsdp_tape_t *fsdp_tape_create(const fsdp_tape_options_t *options);
/** Frees all tensors of the tape; nulls. */
void fsdp_tape_destroy(fsdp_tape_t **tape);
const fsdp_tape_options_t *fsdp_tape_get_options(const fsdp_tape_t *tape);

/** Gradients of the scalar `loss` by every parameter that it depends on, added
 *  to the parameters' gradients.  Not collective by itself, but hooks on the
 *  way (those of fully_shard()) are.  PyTorch: loss.backward(). */
void fsdp_backward(fsdp_tape_t *tape, fsdp_tensor_t *loss);

/** Is this tape only there to compute again what a checkpoint did not keep?  The
 *  hooks of the first time still stand, so on such a tape fsdp_tape_on_grad(),
 *  fsdp_tape_after_grads() and fsdp_tape_on_passed() do nothing. */
bool fsdp_tape_is_recomputing(const fsdp_tape_t *tape);

/* ---- for hooks ---------------------------------------------------------- */

typedef void (*fsdp_tape_fn_t)(void *context, fsdp_tape_t *tape);

/** `fn` runs in the backward when the gradient of `tensor` is complete, before
 *  the node that made it.  PyTorch: Tensor.register_hook(). */
void fsdp_tape_on_grad(fsdp_tape_t *tape, fsdp_tensor_t *tensor,
                       fsdp_tape_fn_t fn, void *context);
/** Passes the values through a node; `fn` runs in the backward when the
 *  gradients of all of them (that the loss reaches) are known.  Tensors that
 *  need no gradient pass unchanged; if none does, nothing is recorded.
 *  PyTorch: RegisterPostBackwardFunction. */
fsdp_values_t fsdp_tape_after_grads(fsdp_tape_t *tape, fsdp_values_t values,
                                    fsdp_tape_fn_t fn, void *context);
/** `fn` runs in every backward of this tape that passes this point: when all
 *  that was recorded after it is done.  Nothing on a tape that is recomputing.
 *  PyTorch: a node that is made here, as FSDP1's views of a flat parameter. */
void fsdp_tape_on_passed(fsdp_tape_t *tape, fsdp_tape_fn_t fn, void *context);
/** `fn` runs once at the end of the running backward (that of the outermost
 *  tape, if one is recomputing).
 *  PyTorch: Variable._execution_engine.queue_callback(). */
void fsdp_tape_queue_callback(fsdp_tape_t *tape, fsdp_tape_fn_t fn,
                              void *context);
/** The gradient of a tensor while the backward stands between the two hooks
 *  above and the node; NULL if none came.  Borrowed. */
const fsdp_tensor_t *fsdp_tape_grad(const fsdp_tape_t *tape,
                                    const fsdp_tensor_t *tensor);

/* ---- for operators ------------------------------------------------------ */

/** An operator's class. */
typedef struct fsdp_op {
    const char *name;
    /** Reads fsdp_node_grad_output(), hands over fsdp_node_set_grad_input()
     *  and fsdp_parameter_add_grad().  Runs only if some output got one. */
    void (*backward)(fsdp_node_t *node);
    /** Frees what `saved` holds (not `saved` itself); may be NULL. */
    void (*free_saved)(void *saved);
} fsdp_op_t;

/** A tensor that the tape owns, FSDP_MEM_ACTIVATION, contents undefined. */
fsdp_tensor_t *fsdp_tape_new_tensor(fsdp_tape_t *tape, fsdp_dtype_t dtype,
                                    int ndim, const size_t *shape);
/** Makes the tape the owner of a tensor (a view for instance). */
fsdp_tensor_t *fsdp_tape_adopt(fsdp_tape_t *tape, fsdp_tensor_t *tensor);

/** Records an operator: which tensors and parameters went in (NULL parameters
 *  are skipped), which came out.  `saved_bytes` zeroed bytes are kept for the
 *  backward: fsdp_node_saved().  The outputs need a gradient if an input or a
 *  parameter does and the tape records gradients; else NULL is returned,
 *  nothing is recorded, and the operator saves nothing.  What is saved must not
 *  point to tensors of the tape: those are the inputs and outputs. */
fsdp_node_t *fsdp_tape_record(fsdp_tape_t *tape, const fsdp_op_t *op,
                              fsdp_values_t inputs,
                              fsdp_parameter_t *const *parameters,
                              int num_parameters, fsdp_values_t outputs,
                              size_t saved_bytes);

void *fsdp_node_saved(fsdp_node_t *node);
fsdp_tape_t *fsdp_node_tape(fsdp_node_t *node);
fsdp_tensor_t *fsdp_node_input(fsdp_node_t *node, int i);
fsdp_tensor_t *fsdp_node_output(fsdp_node_t *node, int i);
/** NULL where NULL was given. */
fsdp_parameter_t *fsdp_node_parameter(fsdp_node_t *node, int i);
/** Does input i need a gradient?  (For parameters see requires_grad.) */
bool fsdp_node_needs_grad(fsdp_node_t *node, int i);
/** The gradient of output i, NULL if the loss does not depend on it.  Borrowed,
 *  read only. */
const fsdp_tensor_t *fsdp_node_grad_output(fsdp_node_t *node, int i);
/** Hands over (and owns) a gradient of input i, of its shape; several are
 *  added up.  Call it only where fsdp_node_needs_grad(). */
void fsdp_node_set_grad_input(fsdp_node_t *node, int i, fsdp_tensor_t *grad);
/** The gradient of output 0 in input i's shape, for operators that pass it on: a
 *  view, for fsdp_node_set_grad_input().  Does not look at the input, which a
 *  checkpoint may not have kept. */
fsdp_tensor_t *fsdp_node_view_grad_output(fsdp_node_t *node, int i);
/** A tensor of input i's shape for its gradient, contents undefined. */
fsdp_tensor_t *fsdp_node_new_grad_input(fsdp_node_t *node, int i);

#endif
