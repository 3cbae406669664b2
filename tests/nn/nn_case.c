#include "nn/nn_case.h"

#include "fsdp/memory.h"
#include "twin/numbers.h"

/* ---- tensors ------------------------------------------------------------ */

fsdp_tensor_t *
nn_tensor(fsdp_tape_t *tape, fsdp_dtype_t dtype, int ndim, const size_t *shape,
          const double *value)
{
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, dtype, ndim, shape);
    for (size_t i = 0; i < fsdp_tensor_numel(x); i++)
        fsdp_tensor_set(x, i, value[i]);
    return x;
}

fsdp_tensor_t *
nn_int32(fsdp_tape_t *tape, int ndim, const size_t *shape, const int32_t *value)
{
    fsdp_tensor_t *x = fsdp_tape_new_tensor(tape, FSDP_INT32, ndim, shape);
    memcpy(x->data, value, fsdp_tensor_bytes(x));
    return x;
}

void
nn_set_parameter(fsdp_parameter_t *parameter, const double *value)
{
    fsdp_parameter_data(parameter);
    fsdp_convert(FSDP_FP64, value, parameter->dtype, parameter->data,
                 fsdp_parameter_numel(parameter));
}

/* ---- operators of the tests' own ---------------------------------------- */

typedef struct probe {
    double *grad;
} probe_t;

static void
probe_backward(fsdp_node_t *node)
{
    const fsdp_tensor_t *dy = fsdp_node_grad_output(node, 0);
    probe_t *probe = fsdp_node_saved(node);
    for (size_t i = 0; i < fsdp_tensor_numel(dy); i++)
        probe->grad[i] = fsdp_tensor_get(dy, i);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    memcpy(dx->data, dy->data, fsdp_tensor_bytes(dy));
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t probe_op = {"probe", probe_backward, NULL};

fsdp_tensor_t *
nn_probe(fsdp_tape_t *tape, fsdp_tensor_t *x, double *grad)
{
    fsdp_tensor_t *y =
        fsdp_tape_adopt(tape, fsdp_tensor_view(x, 0, x->ndim, x->shape));
    x->requires_grad = true;
    fsdp_node_t *node = fsdp_tape_record(tape, &probe_op, fsdp_values1(x), NULL,
                                         0, fsdp_values1(y), sizeof(probe_t));
    if (node != NULL)
        ((probe_t *)fsdp_node_saved(node))->grad = grad;
    return y;
}

typedef struct weighted_sum {
    const double *weight;
} weighted_sum_t;

static void
weighted_sum_backward(fsdp_node_t *node)
{
    const weighted_sum_t *sum = fsdp_node_saved(node);
    fsdp_tensor_t *dx = fsdp_node_new_grad_input(node, 0);
    for (size_t i = 0; i < fsdp_tensor_numel(dx); i++)
        fsdp_tensor_set(dx, i, sum->weight[i]);
    fsdp_node_set_grad_input(node, 0, dx);
}

static const fsdp_op_t weighted_sum_op = {"weighted_sum", weighted_sum_backward,
                                          NULL};

fsdp_tensor_t *
nn_weighted_sum(fsdp_tape_t *tape, fsdp_tensor_t *x, const double *weight)
{
    fsdp_tensor_t *y = fsdp_tape_new_tensor(tape, FSDP_FP64, 0, NULL);
    double sum = 0;
    for (size_t i = 0; i < fsdp_tensor_numel(x); i++)
        sum += weight[i] * fsdp_tensor_get(x, i);
    fsdp_tensor_set(y, 0, sum);
    fsdp_node_t *node =
        fsdp_tape_record(tape, &weighted_sum_op, fsdp_values1(x), NULL, 0,
                         fsdp_values1(y), sizeof(weighted_sum_t));
    if (node != NULL)
        ((weighted_sum_t *)fsdp_node_saved(node))->weight = weight;
    return y;
}

/* ---- cases -------------------------------------------------------------- */

int
nn_case_arrays(const nn_case_t *c)
{
    int count = 0;
    while (count < NN_MAX_ARRAYS && c->array[count].name != NULL)
        count++;
    return count;
}

size_t
nn_array_numel(const nn_array_t *a)
{
    size_t numel = 1;
    for (int d = 0; d < a->ndim; d++)
        numel *= a->shape[d];
    return numel;
}

void
nn_case_randomize(nn_case_t *c, uint32_t seed)
{
    for (int k = 0; k < nn_case_arrays(c); k++) {
        nn_array_t *a = &c->array[k];
        size_t n = nn_array_numel(a);
        a->value = twin_alloc(n, sizeof *a->value);
        a->grad = twin_alloc(n, sizeof *a->grad);
        for (size_t i = 0; i < n; i++) {
            double x = twin_random(seed + (uint32_t)k, i);
            a->value[i] = x + (x < 0 ? -c->keep_away : c->keep_away);
        }
    }
}

void
nn_case_random_upstream(nn_case_t *c, uint32_t seed)
{
    c->upstream = twin_alloc(c->out_numel, sizeof *c->upstream);
    for (size_t i = 0; i < c->out_numel; i++)
        c->upstream[i] = twin_random(seed, i);
}

void
nn_case_free(nn_case_t *c)
{
    for (int k = 0; k < nn_case_arrays(c); k++) {
        fsdp_free(c->array[k].value);
        fsdp_free(c->array[k].grad);
        c->array[k].value = c->array[k].grad = NULL;
    }
    fsdp_free(c->out);
    fsdp_free(c->upstream);
    c->out = c->upstream = NULL;
}

static void
fill_slot(nn_array_t *a, fsdp_dtype_t dtype, fsdp_tape_t *tape, nn_slot_t *slot)
{
    memset(a->grad, 0, nn_array_numel(a) * sizeof *a->grad);
    if (a->parameter) {
        slot->p = fsdp_parameter_create(a->name, dtype, a->ndim, a->shape,
                                        FSDP_INIT_ZEROS, 0, 0);
        nn_set_parameter(slot->p, a->value);
    } else {
        fsdp_tensor_t *x = nn_tensor(tape, dtype, a->ndim, a->shape, a->value);
        slot->x = nn_probe(tape, x, a->grad);
    }
}

/* Takes the gradient of a parameter, and the parameter away. */
static void
empty_slot(nn_array_t *a, nn_slot_t *slot)
{
    if (slot->p == NULL)
        return;
    if (slot->p->grad != NULL)
        for (size_t i = 0; i < nn_array_numel(a); i++)
            a->grad[i] = fsdp_tensor_get(slot->p->grad, i);
    fsdp_parameter_destroy(&slot->p);
}

double
nn_case_run(nn_case_t *c, fsdp_dtype_t dtype)
{
    fsdp_tape_options_t options = fsdp_tape_options_default();
    options.seed = 7;
    options.grad_enabled = c->upstream != NULL;
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    nn_slot_t slot[NN_MAX_ARRAYS] = {{NULL, NULL}};
    for (int k = 0; k < nn_case_arrays(c); k++)
        fill_slot(&c->array[k], dtype, tape, &slot[k]);
    fsdp_tensor_t *integers =
        c->integers_name == NULL
            ? NULL
            : nn_int32(tape, c->integers_ndim, c->integers_shape, c->integers);

    fsdp_tensor_t *out = c->build(c, tape, slot, integers);
    c->out_numel = fsdp_tensor_numel(out);
    fsdp_free(c->out);
    c->out = twin_alloc(c->out_numel, sizeof *c->out);
    for (size_t i = 0; i < c->out_numel; i++)
        c->out[i] = fsdp_tensor_get(out, i);
    double sum = 0;
    if (c->upstream != NULL) {
        fsdp_tensor_t *loss = nn_weighted_sum(tape, out, c->upstream);
        sum = fsdp_tensor_get(loss, 0);
        fsdp_backward(tape, loss);
    }
    for (int k = 0; k < nn_case_arrays(c); k++)
        empty_slot(&c->array[k], &slot[k]);
    fsdp_tape_destroy(&tape);
    return sum;
}
