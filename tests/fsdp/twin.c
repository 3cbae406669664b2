#include "twin.h"

#include <string.h>

#include "fsdp/local.h"
#include "fsdp/memory.h"
#include "mck.h"

/* ---- the model ----------------------------------------------------------- */

/* Of any type, integers too. */
static void
from_doubles(const double *values, fsdp_dtype_t dtype, void *data, size_t n)
{
    fsdp_tensor_t *t = fsdp_tensor_borrow(dtype, 1, &n, data);
    for (size_t i = 0; i < n; i++)
        fsdp_tensor_set(t, i, values[i]);
    fsdp_tensor_destroy(&t);
}

static double *
to_doubles(fsdp_dtype_t dtype, void *data, size_t n)
{
    double *out = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *out);
    fsdp_tensor_t *t = fsdp_tensor_borrow(dtype, 1, &n, data);
    for (size_t i = 0; i < n; i++)
        out[i] = fsdp_tensor_get(t, i);
    fsdp_tensor_destroy(&t);
    return out;
}

twin_t *
twin_create(fsdp_module_t *whole, fsdp_module_t *computing)
{
    twin_t *twin = fsdp_calloc(FSDP_MEM_OTHER, sizeof *twin);
    size_t count = fsdp_module_parameters(whole, twin->param, TWIN_PARAMS);
    ck_assert(count <= TWIN_PARAMS);
    twin->count = (int)count;
    for (int p = 0; p < twin->count; p++) {
        fsdp_parameter_t *param = twin->param[p];
        twin->dtype[p] = param->dtype;
        fsdp_parameter_data(param); /* made now */
        twin->value[p] =
            to_doubles(param->dtype, param->data, fsdp_parameter_numel(param));
    }
    twin->module = whole;
    if (computing != NULL) {
        twin->module = computing;
        fsdp_module_destroy(&whole);
        fsdp_module_parameters(computing, twin->param, TWIN_PARAMS);
    }
    return twin;
}

static void
forget_grads(twin_t *twin)
{
    for (int p = 0; p < twin->count; p++)
        for (int m = 0; m < twin->micros; m++) {
            fsdp_free(twin->grad[p][m]);
            twin->grad[p][m] = NULL;
        }
    twin->micros = 0;
}

void
twin_destroy(twin_t **twin)
{
    forget_grads(*twin);
    for (int p = 0; p < (*twin)->count; p++)
        fsdp_free((*twin)->value[p]);
    fsdp_module_destroy(&(*twin)->module);
    fsdp_free(*twin);
    *twin = NULL;
}

void
twin_run(twin_t *twin, twin_run_t run, int micros)
{
    forget_grads(twin);
    ck_assert(micros <= TWIN_MICROS);
    twin->micros = micros;
    for (int p = 0; p < twin->count; p++) {
        fsdp_parameter_t *param = twin->param[p];
        fsdp_parameter_data(param);
        from_doubles(twin->value[p], param->dtype, param->data,
                     fsdp_parameter_numel(param));
    }
    for (int m = 0; m < micros; m++) {
        run(twin->module, m);
        for (int p = 0; p < twin->count; p++) {
            fsdp_tensor_t *grad = twin->param[p]->grad;
            if (grad != NULL)
                twin->grad[p][m] = to_doubles(grad->dtype, grad->data,
                                              fsdp_tensor_numel(grad));
            fsdp_parameter_zero_grad(twin->param[p]);
        }
    }
}

/* ---- comparisons --------------------------------------------------------- */

/* Which rows of [outer, n, inner] rank `rank` of the shard dimension has. */
typedef struct cut {
    size_t outer, n, inner, chunk, begin, rows;
} cut_t;

static cut_t
cut_of(const fsdp_parameter_t *param, int dim, size_t ranks, size_t rank)
{
    cut_t c = {1, param->shape[dim], 1, 0, 0, 0};
    for (int d = 0; d < dim; d++)
        c.outer *= param->shape[d];
    for (int d = dim + 1; d < param->ndim; d++)
        c.inner *= param->shape[d];
    c.chunk = (c.n + ranks - 1) / ranks;
    c.begin = rank * c.chunk < c.n ? rank * c.chunk : c.n;
    c.rows = c.n - c.begin < c.chunk ? c.n - c.begin : c.chunk;
    return c;
}

/* Element k of the shard, in the whole. */
static size_t
place(const cut_t *c, size_t k)
{
    size_t row = c->rows * c->inner;
    return (k / row * c->n + c->begin) * c->inner + k % row;
}

static bool
is_element(fsdp_dtype_t dtype, const void *data, size_t k, double want)
{
    char bits[8];
    size_t size = fsdp_dtype_size(dtype);
    from_doubles(&want, dtype, bits, 1);
    return memcmp((const char *)data + k * size, bits, size) == 0;
}

static bool
padding_is_zero(const fsdp_local_t *local, fsdp_dtype_t dtype, const void *data)
{
    for (size_t k = local->numel; k < local->padded_numel; k++)
        if (!is_element(dtype, data, k, 0))
            return false;
    return true;
}

static cut_t
cut_of_local(const fsdp_parameter_t *mine, const fsdp_local_t *local, int *rank)
{
    bool cut = local->comm != NULL;
    *rank = cut ? fsdp_comm_rank(local->comm) : 0;
    return cut_of(mine, cut ? local->layout.dim : 0,
                  cut ? (size_t)fsdp_comm_size(local->comm) : 1, (size_t)*rank);
}

bool
twin_grad_agrees(const twin_t *twin, int p, fsdp_parameter_t *mine,
                 const twin_reduction_t *reduction)
{
    int rank;
    double want = 0;
    fsdp_local_t local = fsdp_parameter_local(mine);
    cut_t cut = cut_of_local(mine, &local, &rank);
    if (!twin_reduced(twin, p, 0, rank, reduction, &want))
        return local.grad == NULL;
    if (local.grad == NULL || local.numel != cut.outer * cut.rows * cut.inner)
        return false;
    for (size_t k = 0; k < local.numel; k++) {
        twin_reduced(twin, p, place(&cut, k), rank, reduction, &want);
        if (!is_element(mine->dtype, local.grad, k, want))
            return false;
    }
    return padding_is_zero(&local, mine->dtype, local.grad);
}

bool
twin_grads_agree(const twin_t *twin, fsdp_module_t *module,
                 const twin_reduction_t *reduction)
{
    fsdp_parameter_t *mine[TWIN_PARAMS];
    bool all =
        (int)fsdp_module_parameters(module, mine, TWIN_PARAMS) == twin->count;
    for (int p = 0; p < twin->count && all; p++)
        all = twin_grad_agrees(twin, p, mine[p], reduction);
    return all;
}

bool
twin_data_agree(const twin_t *twin, fsdp_module_t *module)
{
    int rank;
    fsdp_parameter_t *mine[TWIN_PARAMS];
    fsdp_module_parameters(module, mine, TWIN_PARAMS);
    for (int p = 0; p < twin->count; p++) {
        fsdp_local_t local = fsdp_parameter_local(mine[p]);
        cut_t cut = cut_of_local(mine[p], &local, &rank);
        if (local.numel != cut.outer * cut.rows * cut.inner ||
            !padding_is_zero(&local, mine[p]->dtype, local.data))
            return false;
        for (size_t k = 0; k < local.numel; k++)
            if (!is_element(mine[p]->dtype, local.data, k,
                            twin->value[p][place(&cut, k)]))
                return false;
    }
    return true;
}

/* ---- updates ------------------------------------------------------------- */

static double
stepped(fsdp_dtype_t dtype, double value, double grad)
{
    return twin_round(dtype, value - twin_round(dtype, grad / 8));
}

void
twin_update(twin_t *twin, const twin_reduction_t *reduction)
{
    for (int p = 0; p < twin->count; p++) {
        fsdp_parameter_t *param = twin->param[p];
        size_t numel = fsdp_parameter_numel(param);
        size_t row = numel / param->shape[0];
        size_t chunk = (param->shape[0] + (size_t)reduction->shard - 1) /
                       (size_t)reduction->shard;
        for (size_t i = 0; i < numel; i++) {
            double grad;
            if (twin_reduced(twin, p, i, (int)(i / row / chunk), reduction,
                             &grad))
                twin->value[p][i] =
                    stepped(twin->dtype[p], twin->value[p][i], grad);
        }
    }
}

void
twin_update_shards(fsdp_module_t *module)
{
    fsdp_parameter_t *mine[TWIN_PARAMS];
    size_t count = fsdp_module_parameters(module, mine, TWIN_PARAMS);
    for (size_t p = 0; p < count; p++) {
        fsdp_local_t local = fsdp_parameter_local(mine[p]);
        fsdp_dtype_t dtype = mine[p]->dtype;
        size_t size = fsdp_dtype_size(dtype);
        for (size_t k = 0; local.grad != NULL && k < local.numel; k++) {
            double value, grad;
            char *at = (char *)local.data + k * size;
            fsdp_convert(dtype, at, FSDP_FP64, &value, 1);
            fsdp_convert(dtype, (char *)local.grad + k * size, FSDP_FP64, &grad,
                         1);
            value = stepped(dtype, value, grad);
            fsdp_convert(FSDP_FP64, &value, dtype, at, 1);
        }
        fsdp_parameter_local_zero_grad(mine[p]);
    }
}

/* ---- what the tests share ------------------------------------------------ */

int
twin_size(void)
{
    return fsdp_comm_size(fsdp_comm_world());
}

int
twin_rank(void)
{
    return fsdp_comm_rank(fsdp_comm_world());
}

fsdp_mesh_t *
twin_mesh(int replicas)
{
    return replicas == 0
               ? fsdp_mesh_create_1d()
               : fsdp_mesh_create_2d(replicas, twin_size() / replicas);
}

twin_reduction_t
twin_reduction(int replicas, int micros)
{
    int r = replicas > 0 ? replicas : 1;
    return (twin_reduction_t){
        .shard = twin_size() / r, .replicas = r, .micros = micros};
}

fsdp_options_t
twin_options(fsdp_mesh_t *mesh)
{
    fsdp_options_t options = fsdp_options_default();
    options.mesh = mesh;
    return options;
}

void
twin_shard(fsdp_module_t *module, const fsdp_options_t *options)
{
    for (int i = 0; i < module->num_children; i++)
        if (fsdp_module_parameters(module->child[i], NULL, 0) > 0)
            ck_assert_msg(fully_shard(module->child[i], options) == FSDP_OK,
                          "%s", fsdp_error_message());
    ck_assert_msg(fully_shard(module, options) == FSDP_OK, "%s",
                  fsdp_error_message());
}

int
twin_micro(int j)
{
    return j * twin_size() + twin_rank();
}

void
twin_run_sharded(fsdp_module_t *module, twin_run_t run,
                 const twin_reduction_t *r)
{
    for (int j = 0; j < r->micros; j++) {
        bool last = j == r->micros - 1;
        if (r->how == TWIN_NO_SYNC)
            fsdp_module_set_requires_gradient_sync(module, last, true);
        if (r->how == TWIN_DEFERRED)
            fsdp_module_set_requires_all_reduce(module, last, true);
        run(module, twin_micro(j));
    }
}

void
twin_train(twin_t *twin, fsdp_module_t *module, twin_run_t run,
           const twin_reduction_t *r, int steps)
{
    for (int step = 0; step < steps; step++) {
        twin_run(twin, run, r->shard * r->replicas * r->micros);
        twin_run_sharded(module, run, r);
        mck_assert(twin_grads_agree(twin, module, r));
        twin_update(twin, r);
        twin_update_shards(module);
        mck_assert(twin_data_agree(twin, module));
    }
}

twin_calls_t
twin_calls(const fsdp_mesh_t *mesh)
{
    return (twin_calls_t){
        (int)fsdp_mesh_counter(mesh, FSDP_ALL_GATHER).calls,
        (int)fsdp_mesh_counter(mesh, FSDP_REDUCE_SCATTER).calls,
        (int)fsdp_mesh_counter(mesh, FSDP_ALL_REDUCE).calls};
}

bool
twin_called(const fsdp_mesh_t *mesh, int all_gather, int reduce_scatter,
            int all_reduce)
{
    twin_calls_t calls = twin_calls(mesh);
    bool shards = fsdp_comm_size(fsdp_mesh_shard_comm(mesh)) > 1;
    bool replicas = fsdp_mesh_replicate_comm(mesh) != NULL &&
                    fsdp_comm_size(fsdp_mesh_replicate_comm(mesh)) > 1;
    return calls.all_gather == (shards ? all_gather : 0) &&
           calls.reduce_scatter == (shards ? reduce_scatter : 0) &&
           calls.all_reduce == (replicas ? all_reduce : 0);
}
