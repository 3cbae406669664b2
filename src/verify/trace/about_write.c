/* The text of trace.json. */

#include <math.h>

#include "verify/trace/internal.h"
#include "verify/trace/writer.h"

static void
put_dtype(fsdp_json_writer_t *json, const char *key, fsdp_dtype_t dtype)
{
    fsdp_json_put_string(
        json, key, dtype != FSDP_DTYPE_NONE ? fsdp_dtype_name(dtype) : NULL);
}

void
trace_json_copy(fsdp_json_writer_t *json, const fsdp_json_t *value)
{
    int64_t integer;
    double real;
    bool truth;
    if (fsdp_json_is(value, FSDP_JSON_OBJECT)) {
        fsdp_json_open_object(json);
        for (fsdp_json_iter_t it = fsdp_json_first(value); it.key != NULL;
             fsdp_json_next(&it)) {
            fsdp_json_key(json, it.key);
            trace_json_copy(json, it.value);
        }
        fsdp_json_close_object(json);
    } else if (fsdp_json_is(value, FSDP_JSON_ARRAY)) {
        fsdp_json_open_array(json);
        for (size_t i = 0; i < fsdp_json_size(value); i++)
            trace_json_copy(json, fsdp_json_at(value, i));
        fsdp_json_close_array(json);
    } else if (fsdp_json_get_integer(value, &integer)) {
        fsdp_json_integer(json, integer);
    } else if (fsdp_json_get_number(value, &real)) {
        fsdp_json_double(json, real);
    } else if (fsdp_json_get_bool(value, &truth)) {
        fsdp_json_bool(json, truth);
    } else {
        fsdp_json_string(json, fsdp_json_get_string(value));
    }
}

/* ---- parts ----------------------------------------------------------------- */

static void
put_world(fsdp_json_writer_t *json, const fsdp_trace_about_t *a)
{
    static const char *const sync[] = {"each", "last", "last-all-reduce"};
    fsdp_json_put_string(json, "producer", a->producer);
    fsdp_json_put_string(json, "api", a->api);
    fsdp_json_put_integer(json, "world_size", a->world_size);
    fsdp_json_key(json, "ranks");
    fsdp_json_open_array(json);
    for (int i = 0; i < a->num_ranks; i++)
        fsdp_json_integer(json, a->rank[i]);
    fsdp_json_close_array(json);
    fsdp_json_key(json, "mesh");
    fsdp_json_open_object(json);
    fsdp_json_put_integer(json, "replicate", a->replicas);
    fsdp_json_put_integer(json, "shard", a->shards);
    fsdp_json_put_integer(json, "tensor", a->tensor);
    fsdp_json_close_object(json);
    fsdp_json_put_integer(json, "micro_batches", a->micro_batches);
    fsdp_json_put_string(json, "gradient_sync", sync[a->gradient_sync]);
    fsdp_json_key(json, "steps");
    fsdp_json_open_array(json);
    for (int i = 0; i < a->num_steps; i++) {
        fsdp_json_open_object(json);
        fsdp_json_put_integer(json, "step", a->step[i].step);
        fsdp_json_put_double(json, "lr", a->step[i].lr);
        fsdp_json_close_object(json);
    }
    fsdp_json_close_array(json);
}

static void
put_model(fsdp_json_writer_t *json, const fsdp_trace_about_t *a)
{
    fsdp_json_key(json, "model");
    fsdp_json_open_object(json);
    fsdp_json_put_string(json, "type", a->model_type);
    fsdp_json_key(json, "config");
    trace_json_copy(json, (const fsdp_json_t *)a->model_config);
    fsdp_json_close_object(json);
    fsdp_json_key(json, "loss");
    fsdp_json_open_object(json);
    fsdp_json_put_string(json, "kind", a->loss);
    fsdp_json_put_integer(json, "ignore_index", a->ignore_index);
    fsdp_json_put_string(json, "average", a->average);
    fsdp_json_put_double(json, "scale", a->loss_scale);
    fsdp_json_close_object(json);
}

static void
put_optimizer(fsdp_json_writer_t *json, const fsdp_trace_about_t *a)
{
    fsdp_json_key(json, "optimizer");
    fsdp_json_open_object(json);
    fsdp_json_put_string(json, "name", a->optimizer_name);
    if (a->optimizer == FSDP_TRACE_SGD) {
        fsdp_json_put_double(json, "momentum", a->sgd.momentum);
        fsdp_json_put_double(json, "dampening", a->sgd.dampening);
        fsdp_json_put_bool(json, "nesterov", a->sgd.nesterov);
        fsdp_json_put_double(json, "weight_decay", a->sgd.weight_decay);
    } else if (a->optimizer == FSDP_TRACE_ADAMW) {
        fsdp_json_key(json, "betas");
        fsdp_json_open_array(json);
        fsdp_json_double(json, a->adamw.beta1);
        fsdp_json_double(json, a->adamw.beta2);
        fsdp_json_close_array(json);
        fsdp_json_put_double(json, "eps", a->adamw.eps);
        fsdp_json_put_double(json, "weight_decay", a->adamw.weight_decay);
    }
    fsdp_json_close_object(json);
    fsdp_json_put_double(json, "grad_clip", a->grad_clip);
    if (isinf(a->norm_type))
        fsdp_json_put_string(json, "norm_type", "inf");
    else
        fsdp_json_put_double(json, "norm_type", a->norm_type);
}

static void
put_arithmetic(fsdp_json_writer_t *json, const fsdp_trace_about_t *a)
{
    fsdp_json_key(json, "precision");
    fsdp_json_open_object(json);
    put_dtype(json, "dtype", a->dtype);
    put_dtype(json, "param_dtype", a->precision.param_dtype);
    put_dtype(json, "reduce_dtype", a->precision.reduce_dtype);
    put_dtype(json, "output_dtype", a->precision.output_dtype);
    fsdp_json_put_bool(json, "cast_forward_inputs",
                       a->precision.cast_forward_inputs);
    fsdp_json_close_object(json);
    fsdp_json_put_string(
        json, "averaging",
        a->averaging >= 0 ? fsdp_averaging_name((fsdp_averaging_t)a->averaging)
                          : NULL);
    fsdp_json_put_double(json, "divide_factor", a->divide_factor);
    fsdp_json_put_bool(json, "force_sum", a->force_sum);
    fsdp_json_put_string(
        json, "reduce_order",
        a->reduce_order >= 0
            ? fsdp_reduce_order_name((fsdp_reduce_order_t)a->reduce_order)
            : NULL);
    fsdp_json_put_double(json, "dropout", a->dropout);
    if (a->seed >= 0)
        fsdp_json_put_integer(json, "seed", a->seed);
}

static void
put_parameter(fsdp_json_writer_t *json, const fsdp_trace_parameter_t *p)
{
    fsdp_json_open_object(json);
    fsdp_json_put_string(json, "name", p->name);
    fsdp_json_key(json, "shape");
    fsdp_json_open_array(json);
    for (int d = 0; d < p->ndim; d++)
        fsdp_json_integer(json, (int64_t)p->shape[d]);
    fsdp_json_close_array(json);
    put_dtype(json, "dtype", p->dtype);
    fsdp_json_put_string(json, "unit", p->unit);
    if (!isnan(p->weight_decay))
        fsdp_json_put_double(json, "weight_decay", p->weight_decay);
    if (!isnan(p->lr_factor))
        fsdp_json_put_double(json, "lr_factor", p->lr_factor);
    fsdp_json_close_object(json);
}

static void
put_names(fsdp_json_writer_t *json, const fsdp_trace_about_t *a)
{
    fsdp_json_key(json, "parameters");
    fsdp_json_open_array(json);
    for (int i = 0; i < a->num_parameters; i++)
        put_parameter(json, &a->parameter[i]);
    fsdp_json_close_array(json);
    fsdp_json_key(json, "units");
    fsdp_json_open_array(json);
    for (int i = 0; i < a->num_units; i++)
        fsdp_json_string(json, a->unit[i]);
    fsdp_json_close_array(json);
}

fsdp_json_writer_t *
trace_about_write(const fsdp_trace_about_t *about)
{
    fsdp_json_writer_t *json = fsdp_json_writer_create();
    fsdp_json_open_object(json);
    fsdp_json_put_string(json, "format", "libfsdp-trace");
    fsdp_json_put_integer(json, "version", TRACE_VERSION);
    put_world(json, about);
    put_model(json, about);
    put_optimizer(json, about);
    put_arithmetic(json, about);
    put_names(json, about);
    fsdp_json_close_object(json);
    return json;
}
