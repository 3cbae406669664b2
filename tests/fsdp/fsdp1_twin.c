#include "fsdp1_twin.h"

#include <math.h>
#include <string.h>

float
twin_round(fsdp_dtype_t dtype, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype != FSDP_BF16 || isnan(x))
        return x;
    bits += 0x7fffu + ((bits >> 16) & 1u);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- life ---------------------------------------------------------------- */

static fsdp_dtype_t
data_dtype(const twin_config_t *c)
{
    return c->param_dtype != FSDP_DTYPE_NONE ? c->param_dtype : FSDP_FP32;
}

static fsdp_dtype_t
sum_dtype(const twin_config_t *c)
{
    return c->reduce_dtype != FSDP_DTYPE_NONE ? c->reduce_dtype : data_dtype(c);
}

twin_t *
twin_create(const twin_config_t *config)
{
    twin_t *twin = fsdp_calloc(FSDP_MEM_BASELINE, sizeof *twin);
    twin->config = *config;
    net_config_t net = config->net;
    fsdp_module_t *whole = net_create(&net); /* float32: initial values */
    net.dtype = data_dtype(config);
    twin->net = net_create(&net);
    fsdp_parameter_t *from[TWIN_PARAMS];
    twin->count =
        (int)fsdp_module_parameters(twin->net, twin->parameter, TWIN_PARAMS);
    fsdp_module_parameters(whole, from, TWIN_PARAMS);
    for (int p = 0; p < twin->count; p++) {
        size_t n = fsdp_parameter_numel(from[p]);
        twin->master[p] = fsdp_alloc(FSDP_MEM_BASELINE, n * sizeof(float));
        memcpy(twin->master[p], fsdp_parameter_data(from[p]),
               n * sizeof(float));
    }
    fsdp_module_destroy(&whole);
    return twin;
}

static void
forget_grads(twin_t *twin)
{
    for (int p = 0; p < twin->count; p++)
        for (int g = 0; g < TWIN_MICROS; g++) {
            fsdp_free(twin->grad[p][g]);
            twin->grad[p][g] = NULL;
        }
}

void
twin_destroy(twin_t **twin)
{
    forget_grads(*twin);
    for (int p = 0; p < (*twin)->count; p++)
        fsdp_free((*twin)->master[p]);
    fsdp_module_destroy(&(*twin)->net);
    fsdp_free(*twin);
    *twin = NULL;
}

/* ---- gradients ----------------------------------------------------------- */

/* The model's values become the masters, rounded. */
static void
lower(twin_t *twin)
{
    for (int p = 0; p < twin->count; p++) {
        fsdp_parameter_t *to = twin->parameter[p];
        size_t shape[] = {fsdp_parameter_numel(to)};
        fsdp_tensor_t *view = fsdp_tensor_borrow(
            to->dtype, 1, shape, (void *)fsdp_parameter_data(to));
        for (size_t i = 0; i < shape[0]; i++)
            fsdp_tensor_set(view, i, twin->master[p][i]);
        fsdp_tensor_destroy(&view);
    }
}

static void
keep_grads(twin_t *twin, int g)
{
    for (int p = 0; p < twin->count; p++) {
        const fsdp_tensor_t *grad = twin->parameter[p]->grad;
        size_t n = fsdp_parameter_numel(twin->parameter[p]);
        if (grad == NULL)
            continue;
        float *copy = fsdp_alloc(FSDP_MEM_BASELINE, n * sizeof *copy);
        for (size_t i = 0; i < n; i++)
            copy[i] = (float)fsdp_tensor_get(grad, i);
        twin->grad[p][g] = copy;
        fsdp_parameter_zero_grad(twin->parameter[p]);
    }
}

void
twin_run(twin_t *twin, int step)
{
    const twin_config_t *c = &twin->config;
    forget_grads(twin);
    lower(twin);
    for (int g = 0; g < c->replicas * c->shards * c->micros; g++) {
        fsdp_tape_t *tape = fsdp_tape_create(NULL);
        fsdp_tensor_t *x = net_batch(twin->net, tape, NET_BATCH, 7 * step + g);
        fsdp_tensor_t *loss = net_loss(twin->net, tape, x);
        fsdp_backward(tape, loss);
        twin->loss[g] = fsdp_tensor_get(loss, 0);
        fsdp_tape_destroy(&tape);
        keep_grads(twin, g);
    }
}

int
twin_micro_batch(const twin_config_t *c, int rank, int j)
{
    return c->no_sync ? rank * c->micros + j
                      : j * c->replicas * c->shards + rank;
}

/* ---- sums ---------------------------------------------------------------- */

/* x[0..n) as pairs, then pairs of pairs; a last odd one goes up unpaired. */
static float
tree_sum(fsdp_dtype_t dtype, const float *x, int n)
{
    float level[TWIN_MICROS] = {0};
    memcpy(level, x, (size_t)n * sizeof *x);
    while (n > 1) {
        int next = 0;
        for (int i = 0; i < n; i += 2)
            level[next++] = i + 1 < n
                                ? twin_round(dtype, level[i] + level[i + 1])
                                : level[i];
        n = next;
    }
    return level[0];
}

static float
ordered_sum(const twin_config_t *c, fsdp_dtype_t dtype, const float *x, int n,
            int owner)
{
    if (c->order == FSDP_ORDER_TREE)
        return tree_sum(dtype, x, n);
    int first = c->order == FSDP_ORDER_RING ? owner + 1 : 0;
    float sum = x[first % n];
    for (int i = 1; i < n; i++)
        sum = twin_round(dtype, sum + x[(first + i) % n]);
    return sum;
}

/* p, the power of two by which is divided before the sum. */
static float
before(const twin_config_t *c, float *after)
{
    double n = c->factor > 0 ? c->factor : c->replicas * c->shards, p = 1;
    while (fmod(n, p) == 0 && n / p > p)
        p *= 2;
    *after = (float)(n / p);
    return (float)p;
}

/* One reduction of what each rank has. */
static float
reduce(const twin_config_t *c, const float *mine, int owner)
{
    float post, pre = before(c, &post), x[TWIN_RANKS], over[TWIN_RANKS];
    fsdp_dtype_t t = sum_dtype(c);
    int n = c->replicas * c->shards;
    for (int r = 0; r < n; r++)
        x[r] = twin_round(t, twin_round(t, mine[r]) / pre);
    float sum = ordered_sum(c, t, x, n, owner);
    if (!c->all_reduce && c->replicas > 1) {
        for (int r = 0; r < c->replicas; r++)
            over[r] = ordered_sum(c, t, x + r * c->shards, c->shards, owner);
        sum = ordered_sum(c, t, over, c->replicas, owner);
    }
    return twin_round(t, sum / post);
}

/* What a rank has added up in the type of its gradients. */
static float
without_sync(const twin_t *twin, int p, size_t i, int rank)
{
    const twin_config_t *c = &twin->config;
    float x[TWIN_MICROS];
    for (int j = 0; j < c->micros; j++)
        x[j] = twin->grad[p][twin_micro_batch(c, rank, j)][i];
    twin_config_t plain = *c;
    if (c->order == FSDP_ORDER_RING)
        plain.order = FSDP_ORDER_RANK;
    return ordered_sum(&plain, data_dtype(c), x, c->micros, 0);
}

float
twin_grad(const twin_t *twin, int p, size_t i, int owner)
{
    const twin_config_t *c = &twin->config;
    int ranks = c->replicas * c->shards;
    float mine[TWIN_RANKS] = {0}, reduced[TWIN_MICROS] = {0};
    if (c->no_sync) {
        for (int r = 0; r < ranks; r++)
            mine[r] = without_sync(twin, p, i, r);
        return reduce(c, mine, owner);
    }
    for (int j = 0; j < c->micros; j++) {
        for (int r = 0; r < ranks; r++)
            mine[r] = twin->grad[p][twin_micro_batch(c, r, j)][i];
        reduced[j] = reduce(c, mine, owner);
    }
    twin_config_t plain = *c;
    if (c->order == FSDP_ORDER_RING)
        plain.order = FSDP_ORDER_RANK;
    return ordered_sum(&plain, FSDP_FP32, reduced, c->micros, 0);
}

void
twin_update(twin_t *twin, float lr)
{
    for (int p = 0; p < twin->count; p++) {
        size_t n = fsdp_parameter_numel(twin->parameter[p]);
        for (size_t i = 0; i < n && twin->grad[p][0] != NULL; i++)
            twin->master[p][i] -= lr * twin_grad(twin, p, i, 0);
    }
}
