#include "nn/training.h"

#include <math.h>
#include <string.h>

#include "fsdp/gpt2.h"
#include "fsdp/llama.h"
#include "fsdp/mlp.h"
#include "fsdp/ops.h"
#include "tensor/kernels.h"

enum { STEPS = 3, MICRO_BATCHES = 2 };

/* ---- opening ------------------------------------------------------------ */

static fsdp_module_t *
mlp_of(const fsdp_safetensors_t *golden)
{
    double *width = golden_read(golden, "hyper.widths", FSDP_FP64);
    size_t widths = golden_entry(golden, "hyper.widths")->numel;
    fsdp_mlp_config_t config = {.num_layers = (int)widths - 1,
                                .dtype = FSDP_FP64};
    for (size_t i = 0; i < widths; i++)
        config.width[i] = (size_t)width[i];
    fsdp_free(width);
    return fsdp_mlp_create(&config);
}

static size_t
size_of(const fsdp_safetensors_t *golden, const char *name)
{
    return (size_t)golden_number(golden, name);
}

static fsdp_module_t *
gpt2_of(const fsdp_safetensors_t *golden)
{
    fsdp_gpt2_config_t config = fsdp_gpt2_config_default();
    config.n_layer = size_of(golden, "hyper.n_layer");
    config.n_head = size_of(golden, "hyper.n_head");
    config.n_embd = size_of(golden, "hyper.n_embd");
    config.vocab_size = size_of(golden, "hyper.vocab_size");
    config.n_positions = size_of(golden, "hyper.n_positions");
    config.layer_norm_epsilon =
        golden_number(golden, "hyper.layer_norm_epsilon");
    config.tie_word_embeddings =
        golden_number(golden, "hyper.tie_word_embeddings") != 0;
    config.dtype = FSDP_FP64;
    return fsdp_gpt2_create(&config);
}

static fsdp_module_t *
llama_of(const fsdp_safetensors_t *golden)
{
    fsdp_llama_config_t config = {
        .num_hidden_layers = size_of(golden, "hyper.num_hidden_layers"),
        .num_attention_heads = size_of(golden, "hyper.num_attention_heads"),
        .num_key_value_heads = size_of(golden, "hyper.num_key_value_heads"),
        .hidden_size = size_of(golden, "hyper.hidden_size"),
        .head_dim = size_of(golden, "hyper.head_dim"),
        .intermediate_size = size_of(golden, "hyper.intermediate_size"),
        .vocab_size = size_of(golden, "hyper.vocab_size"),
        .max_position_embeddings =
            size_of(golden, "hyper.max_position_embeddings"),
        .rms_norm_eps = golden_number(golden, "hyper.rms_norm_eps"),
        .rope_theta = golden_number(golden, "hyper.rope_theta"),
        .tie_word_embeddings =
            golden_number(golden, "hyper.tie_word_embeddings") != 0,
        .dtype = FSDP_FP64,
    };
    return fsdp_llama_create(&config);
}

static bool
has(const training_t *t, const char *name)
{
    return fsdp_safetensors_find(t->golden, name) != NULL;
}

training_t *
training_open(const char *file)
{
    training_t *t = fsdp_calloc(FSDP_MEM_OTHER, sizeof *t);
    t->golden = golden_open(file);
    bool mlp = has(t, "hyper.widths"), llama = has(t, "hyper.hidden_size");
    t->adamw = has(t, "hyper.betas");
    t->module = mlp     ? mlp_of(t->golden)
                : llama ? llama_of(t->golden)
                        : gpt2_of(t->golden);
    t->loss = mlp ? fsdp_mlp_loss : llama ? fsdp_llama_loss : fsdp_gpt2_loss;
    t->count = fsdp_module_parameters(t->module, t->parameter,
                                      TRAINING_MAX_PARAMETERS);
    for (size_t k = 0; k < t->count; k++) {
        char *name = fsdp_format("init.%s", t->parameter[k]->name);
        size_t n = fsdp_parameter_numel(t->parameter[k]);
        FSDP_CHECK(golden_entry(t->golden, name)->numel == n, "%s", name);
        t->init[k] = golden_read(t->golden, name, FSDP_FP64);
        for (int s = 0; s < 2; s++)
            t->state[k][s] = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof(double));
        fsdp_free(name);
    }
    return t;
}

static void
forget_segments(training_t *t)
{
    for (size_t i = 0; i < t->num_segments; i++)
        fsdp_free(t->segment[i].name);
    t->num_segments = t->length = 0;
}

void
training_close(training_t *t)
{
    forget_segments(t);
    for (size_t k = 0; k < t->count; k++) {
        fsdp_free(t->init[k]);
        fsdp_free(t->state[k][0]);
        fsdp_free(t->state[k][1]);
    }
    fsdp_module_destroy(&t->module);
    fsdp_safetensors_close(&t->golden);
    fsdp_free(t);
}

/* ---- the trajectory ----------------------------------------------------- */

typedef struct run {
    training_t *t;
    int step;
    double lr;
    double *out;
    size_t room;
} run_t;

static void
append(run_t *r, const char *what, const char *of, const double *value,
       size_t n)
{
    training_t *t = r->t;
    FSDP_CHECK(t->num_segments < TRAINING_MAX_SEGMENTS &&
                   t->length + n <= r->room,
               "a longer trajectory");
    training_segment_t *s = &t->segment[t->num_segments++];
    s->name = fsdp_format("step%d.%s%s", r->step, what, of);
    s->begin = t->length;
    s->count = n;
    memcpy(r->out + t->length, value, n * sizeof *value);
    t->length += n;
}

static fsdp_tensor_t *
batch_tensor(const run_t *r, int micro, const char *what, void **data)
{
    char *name = fsdp_format("step%d.micro%d.%s", r->step, micro, what);
    const fsdp_safetensors_entry_t *e = golden_entry(r->t->golden, name);
    size_t shape[FSDP_MAX_DIMS];
    for (int d = 0; d < e->ndim; d++)
        shape[d] = e->shape[d];
    *data = golden_read(r->t->golden, name, e->dtype);
    fsdp_free(name);
    return fsdp_tensor_borrow(e->dtype, e->ndim, shape, *data);
}

static void
one_micro_batch(run_t *r, int micro)
{
    void *data[2];
    fsdp_tensor_t *x = batch_tensor(r, micro, "input", &data[0]);
    fsdp_tensor_t *y = batch_tensor(r, micro, "target", &data[1]);
    fsdp_tape_options_t options = fsdp_tape_options_default();
    fsdp_tape_t *tape = fsdp_tape_create(&options);
    fsdp_tensor_t *loss = r->t->loss(tape, r->t->module, x, y);
    double value = fsdp_tensor_get(loss, 0);
    fsdp_backward(tape, fsdp_scale(tape, loss, 1.0 / MICRO_BATCHES));
    append(r, micro == 0 ? "micro0.loss" : "micro1.loss", "", &value, 1);
    fsdp_tape_destroy(&tape);
    fsdp_tensor_destroy(&x);
    fsdp_tensor_destroy(&y);
    fsdp_free(data[0]);
    fsdp_free(data[1]);
}

static void
add_noise(double *grad, size_t n, double noise)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(grad[i]));
    for (size_t i = 0; i < n; i++)
        grad[i] += noise * largest;
}

/* Records the gradients and clips them as clip_grad_norm_() does. */
static void
clip(run_t *r)
{
    training_t *t = r->t;
    double sum = 0;
    for (size_t k = 0; k < t->count; k++) {
        double *grad = t->parameter[k]->grad->data;
        size_t n = fsdp_parameter_numel(t->parameter[k]);
        add_noise(grad, n, t->grad_noise);
        append(r, "grad.", t->parameter[k]->name, grad, n);
        for (size_t i = 0; i < n; i++)
            sum += grad[i] * grad[i];
    }
    double norm = sqrt(sum);
    append(r, "grad_norm", "", &norm, 1);
    double factor =
        fmin(1, golden_number(t->golden, "hyper.max_norm") / (norm + 1e-6));
    for (size_t k = 0; k < t->count; k++)
        fsdp_kernels(FSDP_FP64)->scale(t->parameter[k]->grad->data, factor,
                                       t->parameter[k]->grad->data,
                                       fsdp_parameter_numel(t->parameter[k]));
}

static void
adamw(const run_t *r, size_t k)
{
    training_t *t = r->t;
    double *betas = golden_read(t->golden, "hyper.betas", FSDP_FP64);
    fsdp_parameter_t *p = t->parameter[k];
    fsdp_kernels(FSDP_FP64)->adamw(
        p->data, p->grad->data, t->state[k][0], t->state[k][1],
        fsdp_parameter_numel(p), r->lr, betas[0], betas[1],
        golden_number(t->golden, "hyper.eps"),
        golden_number(t->golden, "hyper.weight_decay"), r->step);
    fsdp_free(betas);
}

static void
sgd(const run_t *r, size_t k)
{
    const fsdp_safetensors_t *g = r->t->golden;
    fsdp_parameter_t *p = r->t->parameter[k];
    fsdp_kernels(FSDP_FP64)->sgd(
        p->data, p->grad->data, r->t->state[k][0], fsdp_parameter_numel(p),
        r->lr, golden_number(g, "hyper.momentum"),
        golden_number(g, "hyper.dampening"),
        golden_number(g, "hyper.weight_decay"),
        golden_number(g, "hyper.nesterov") != 0, r->step == 1);
}

static void
update(run_t *r)
{
    training_t *t = r->t;
    for (size_t k = 0; k < t->count; k++) {
        fsdp_parameter_t *p = t->parameter[k];
        size_t n = fsdp_parameter_numel(p);
        if (t->adamw)
            adamw(r, k);
        else
            sgd(r, k);
        append(r, "param.", p->name, p->data, n);
        append(r, t->adamw ? "exp_avg." : "momentum_buffer.", p->name,
               t->state[k][0], n);
        if (t->adamw)
            append(r, "exp_avg_sq.", p->name, t->state[k][1], n);
        fsdp_parameter_zero_grad(p);
    }
}

static void
reset(training_t *t)
{
    forget_segments(t);
    for (size_t k = 0; k < t->count; k++) {
        size_t bytes = fsdp_parameter_numel(t->parameter[k]) * sizeof(double);
        fsdp_parameter_data(t->parameter[k]);
        memcpy(t->parameter[k]->data, t->init[k], bytes);
        memset(t->state[k][0], 0, bytes);
        memset(t->state[k][1], 0, bytes);
    }
}

double *
training_run(training_t *t)
{
    reset(t);
    size_t room = STEPS * (4 * fsdp_module_num_elements(t->module) + 8);
    run_t r = {.t = t, .room = room};
    r.out = fsdp_alloc(FSDP_MEM_OTHER, room * sizeof *r.out);
    for (r.step = 1; r.step <= STEPS; r.step++) {
        char *name = fsdp_format("step%d.lr", r.step);
        r.lr = golden_number(t->golden, name);
        fsdp_free(name);
        for (int micro = 0; micro < MICRO_BATCHES; micro++)
            one_micro_batch(&r, micro);
        clip(&r);
        update(&r);
    }
    return r.out;
}

double *
training_golden(const training_t *t)
{
    double *out = fsdp_alloc(FSDP_MEM_OTHER, t->length * sizeof *out);
    for (size_t i = 0; i < t->num_segments; i++) {
        const training_segment_t *s = &t->segment[i];
        double *value = golden_read(t->golden, s->name, FSDP_FP64);
        FSDP_CHECK(golden_entry(t->golden, s->name)->numel == s->count,
                   "golden %s has another size", s->name);
        memcpy(out + s->begin, value, s->count * sizeof *value);
        fsdp_free(value);
    }
    return out;
}
