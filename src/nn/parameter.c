#include "fsdp/parameter.h"

#include <string.h>

#include "fsdp/random.h"
#include "fsdp/status.h"
#include "nn/ops_internal.h"

fsdp_parameter_t *
fsdp_parameter_create(const char *name, fsdp_dtype_t dtype, int ndim,
                      const size_t *shape, fsdp_init_kind_t init, double scale,
                      uint64_t seed)
{
    FSDP_CHECK(ndim >= 1 && ndim <= FSDP_MAX_DIMS,
               "parameter %s has %d dimensions; 1 to %d are allowed (a scalar "
               "has no rows to shard)",
               name, ndim, FSDP_MAX_DIMS);
    fsdp_parameter_t *parameter =
        fsdp_calloc(FSDP_MEM_OTHER, sizeof *parameter);
    parameter->name = fsdp_strdup(name);
    parameter->dtype = parameter->data_dtype = dtype;
    parameter->part_dim = -1;
    parameter->num_parts = 1;
    parameter->part_groups = 1;
    parameter->ndim = ndim;
    memcpy(parameter->shape, shape, (size_t)ndim * sizeof *shape);
    parameter->requires_grad = true;
    parameter->init = init;
    parameter->init_scale = scale;
    parameter->seed = seed;
    return parameter;
}

void
fsdp_parameter_destroy(fsdp_parameter_t **parameter)
{
    fsdp_parameter_t *p = *parameter;
    if (p == NULL)
        return;
    fsdp_tensor_destroy(&p->grad);
    fsdp_tensor_destroy(&p->incoming);
    if (p->data_owned)
        fsdp_free(p->data);
    fsdp_free(p->name);
    fsdp_free(p);
    *parameter = NULL;
}

size_t
fsdp_parameter_row_numel(const fsdp_parameter_t *parameter)
{
    size_t numel = 1;
    for (int i = 1; i < parameter->ndim; i++)
        numel *= parameter->shape[i];
    return numel;
}

size_t
fsdp_parameter_numel(const fsdp_parameter_t *parameter)
{
    return parameter->shape[0] * fsdp_parameter_row_numel(parameter);
}

/* ---- parts of a larger tensor -------------------------------------------- */

void
fsdp_parameter_whole_shape(const fsdp_parameter_t *parameter,
                           size_t shape[FSDP_MAX_DIMS])
{
    memcpy(shape, parameter->shape, sizeof parameter->shape);
    if (parameter->part_dim >= 0)
        shape[parameter->part_dim] *= (size_t)parameter->num_parts;
}

/* Seen as [outer, rows, inner] with the rows cut, a part is one run in each
 * outer; and so it is with groups, which are `outer` too. */
size_t
fsdp_parameter_whole_element(const fsdp_parameter_t *parameter, size_t begin,
                             size_t *count)
{
    size_t numel = fsdp_parameter_numel(parameter);
    *count = numel - begin;
    if (parameter->part_dim < 0 || numel == 0)
        return begin;
    size_t run = 1; /* rows x inner of the part */
    for (int d = parameter->part_dim; d < parameter->ndim; d++)
        run *= parameter->shape[d];
    run /= (size_t)parameter->part_groups;
    size_t outer = begin / run, within = begin % run;
    *count = run - within;
    return (outer * (size_t)parameter->num_parts + (size_t)parameter->part) *
               run +
           within;
}

/* ---- data ---------------------------------------------------------------- */

/* Unmanaged and new: the whole of it comes from its initial values. */
static void
make_whole(fsdp_parameter_t *parameter)
{
    size_t numel = fsdp_parameter_numel(parameter);
    parameter->data = fsdp_alloc(FSDP_MEM_UNSHARDED_PARAM,
                                 numel * fsdp_dtype_size(parameter->dtype));
    parameter->data_owned = true;
    fsdp_parameter_init_range(parameter, 0, numel, parameter->data);
}

const void *
fsdp_parameter_data(fsdp_parameter_t *parameter)
{
    if (parameter->data == NULL) {
        FSDP_CHECK(parameter->managed == NULL,
                   "parameter %s used while SHARDED: call the module that "
                   "owns it, so that its hooks gather it",
                   parameter->name);
        make_whole(parameter);
    }
    return parameter->data;
}

/* One element's initial value; a function of seed, name and index alone. */
static double
initial_value(const fsdp_parameter_t *parameter, uint64_t name_hash,
              size_t element)
{
    uint32_t word = fsdp_random_word(parameter->seed, FSDP_RANDOM_INIT, 0,
                                     name_hash, element);
    if (parameter->init == FSDP_INIT_NORMAL)
        return parameter->init_scale * fsdp_random_normal(word);
    return parameter->init_scale * (2.0 * fsdp_random_uniform(word) - 1.0);
}

/* Random values go through a buffer of doubles, so that float32 is the float64
 * value rounded.  `begin` counts in the larger tensor. */
static void
init_random(const fsdp_parameter_t *parameter, size_t begin, size_t count,
            char *out)
{
    enum { CHUNK = 1024 };
    double value[CHUNK];
    uint64_t name_hash = fsdp_hash_name(parameter->name);
    size_t size = fsdp_dtype_size(parameter->dtype);

    for (size_t done = 0; done < count; done += CHUNK) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        for (size_t i = 0; i < n; i++)
            value[i] = initial_value(parameter, name_hash, begin + done + i);
        fsdp_convert(FSDP_FP64, value, parameter->dtype, out + done * size, n);
    }
}

void
fsdp_parameter_init_range(const fsdp_parameter_t *parameter, size_t begin,
                          size_t count, void *out)
{
    FSDP_CHECK(begin + count <= fsdp_parameter_numel(parameter),
               "elements %zu to %zu of parameter %s, which has %zu", begin,
               begin + count, parameter->name, fsdp_parameter_numel(parameter));
    size_t size = fsdp_dtype_size(parameter->dtype);
    if (parameter->init == FSDP_INIT_NORMAL ||
        parameter->init == FSDP_INIT_UNIFORM) {
        for (size_t run, done = 0; done < count; done += run) {
            size_t there =
                fsdp_parameter_whole_element(parameter, begin + done, &run);
            run = run < count - done ? run : count - done;
            init_random(parameter, there, run, (char *)out + done * size);
        }
        return;
    }
    /* Integers too: a frozen parameter may be one. */
    double value = parameter->init == FSDP_INIT_ONES ? 1.0 : 0.0;
    fsdp_tensor_t *range = fsdp_tensor_borrow(parameter->dtype, 1, &count, out);
    for (size_t i = 0; i < count; i++)
        fsdp_tensor_set(range, i, value);
    fsdp_tensor_destroy(&range);
}

fsdp_tensor_t *
fsdp_parameter_new_grad(const fsdp_parameter_t *parameter)
{
    return fsdp_tensor_create(FSDP_MEM_UNSHARDED_GRAD, parameter->data_dtype,
                              parameter->ndim, parameter->shape);
}

/* sum = sum + term, where `term` is freed; NULL stands for nothing yet. */
static void
add_to(fsdp_tensor_t **sum, fsdp_tensor_t *term)
{
    if (*sum == NULL) {
        *sum = term;
        return;
    }
    fsdp_op_sum(*sum, term, *sum);
    fsdp_tensor_destroy(&term);
}

void
fsdp_parameter_add_grad(fsdp_parameter_t *parameter, fsdp_tensor_t *grad)
{
    FSDP_CHECK(grad->dtype == parameter->data_dtype &&
                   fsdp_tensor_numel(grad) == fsdp_parameter_numel(parameter),
               "a gradient of another shape or type than parameter %s",
               parameter->name);
    add_to(&parameter->incoming, grad);
    if (--parameter->awaited_uses > 0)
        return;
    add_to(&parameter->grad, parameter->incoming);
    parameter->incoming = NULL;
    parameter->awaited_uses = 0;
}

void
fsdp_parameter_forget_backward(fsdp_parameter_t *parameter)
{
    fsdp_tensor_destroy(&parameter->incoming);
    fsdp_tensor_destroy(&parameter->grad);
    parameter->awaited_uses = 0;
}

void
fsdp_parameter_zero_grad(fsdp_parameter_t *parameter)
{
    fsdp_tensor_destroy(&parameter->grad);
}
