/* The text of trace.json. */

#include <math.h>

#include "verify/trace/internal.h"
#include "verify/trace/writer.h"

static void
put_text(fsdp_json_writer_t *json, const char *key, const char *text)
{
    fsdp_json_key(json, key);
    fsdp_json_string(json, text);
}

static void
put_integer(fsdp_json_writer_t *json, const char *key, int64_t value)
{
    fsdp_json_key(json, key);
    fsdp_json_integer(json, value);
}

static void
put_number(fsdp_json_writer_t *json, const char *key, double value)
{
    fsdp_json_key(json, key);
    fsdp_json_double(json, value); /* NaN as null */
}

static void
put_bool(fsdp_json_writer_t *json, const char *key, bool value)
{
    fsdp_json_key(json, key);
    fsdp_json_bool(json, value);
}

static void
put_dtype(fsdp_json_writer_t *json, const char *key, fsdp_dtype_t dtype)
{
    put_text(json, key,
             dtype != FSDP_DTYPE_NONE ? fsdp_dtype_name(dtype) : NULL);
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
    put_text(json, "producer", a->producer);
    put_text(json, "api", a->api);
    put_integer(json, "world_size", a->world_size);
    fsdp_json_key(json, "ranks");
    fsdp_json_open_array(json);
    for (int i = 0; i < a->num_ranks; i++)
        fsdp_json_integer(json, a->rank[i]);
    fsdp_json_close_array(json);
    fsdp_json_key(json, "mesh");
    fsdp_json_open_object(json);
    put_integer(json, "replicate", a->replicas);
    put_integer(json, "shard", a->shards);
    put_integer(json, "tensor", a->tensor);
    fsdp_json_close_object(json);
    put_integer(json, "micro_batches", a->micro_batches);
    put_text(json, "gradient_sync", sync[a->gradient_sync]);
    fsdp_json_key(json, "steps");
    fsdp_json_open_array(json);
    for (int i = 0; i < a->num_steps; i++) {
        fsdp_json_open_object(json);
        put_integer(json, "step", a->step[i].step);
        put_number(json, "lr", a->step[i].lr);
        fsdp_json_close_object(json);
    }
    fsdp_json_close_array(json);
}

static void
put_model(fsdp_json_writer_t *json, const fsdp_trace_about_t *a)
{
    fsdp_json_key(json, "model");
    fsdp_json_open_object(json);
    put_text(json, "type", a->model_type);
    fsdp_json_key(json, "config");
    trace_json_copy(json, (const fsdp_json_t *)a->model_config);
    fsdp_json_close_object(json);
    fsdp_json_key(json, "loss");
    fsdp_json_open_object(json);
    put_text(json, "kind", a->loss);
    put_integer(json, "ignore_index", a->ignore_index);
    put_text(json, "average", a->average);
    put_number(json, "scale", a->loss_scale);
    fsdp_json_close_object(json);
}

static void
put_optimizer(fsdp_json_writer_t *json, const fsdp_trace_about_t *a)
{
    fsdp_json_key(json, "optimizer");
    fsdp_json_open_object(json);
    put_text(json, "name", a->optimizer_name);
    if (a->optimizer == FSDP_TRACE_SGD) {
        put_number(json, "momentum", a->sgd.momentum);
        put_number(json, "dampening", a->sgd.dampening);
        put_bool(json, "nesterov", a->sgd.nesterov);
        put_number(json, "weight_decay", a->sgd.weight_decay);
    } else if (a->optimizer == FSDP_TRACE_ADAMW) {
        fsdp_json_key(json, "betas");
        fsdp_json_open_array(json);
        fsdp_json_double(json, a->adamw.beta1);
        fsdp_json_double(json, a->adamw.beta2);
        fsdp_json_close_array(json);
        put_number(json, "eps", a->adamw.eps);
        put_number(json, "weight_decay", a->adamw.weight_decay);
    }
    fsdp_json_close_object(json);
    put_number(json, "grad_clip", a->grad_clip);
    if (isinf(a->norm_type))
        put_text(json, "norm_type", "inf");
    else
        put_number(json, "norm_type", a->norm_type);
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
    put_bool(json, "cast_forward_inputs", a->precision.cast_forward_inputs);
    fsdp_json_close_object(json);
    put_text(json, "averaging",
             a->averaging >= 0
                 ? fsdp_averaging_name((fsdp_averaging_t)a->averaging)
                 : NULL);
    put_number(json, "divide_factor", a->divide_factor);
    put_bool(json, "force_sum", a->force_sum);
    put_text(json, "reduce_order",
             a->reduce_order >= 0
                 ? fsdp_reduce_order_name((fsdp_reduce_order_t)a->reduce_order)
                 : NULL);
    put_number(json, "dropout", a->dropout);
    if (a->seed >= 0)
        put_integer(json, "seed", a->seed);
}

static void
put_parameter(fsdp_json_writer_t *json, const fsdp_trace_parameter_t *p)
{
    fsdp_json_open_object(json);
    put_text(json, "name", p->name);
    fsdp_json_key(json, "shape");
    fsdp_json_open_array(json);
    for (int d = 0; d < p->ndim; d++)
        fsdp_json_integer(json, (int64_t)p->shape[d]);
    fsdp_json_close_array(json);
    put_dtype(json, "dtype", p->dtype);
    put_text(json, "unit", p->unit);
    if (!isnan(p->weight_decay))
        put_number(json, "weight_decay", p->weight_decay);
    if (!isnan(p->lr_factor))
        put_number(json, "lr_factor", p->lr_factor);
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
    put_text(json, "format", "libfsdp-trace");
    put_integer(json, "version", TRACE_VERSION);
    put_world(json, about);
    put_model(json, about);
    put_optimizer(json, about);
    put_arithmetic(json, about);
    put_names(json, about);
    fsdp_json_close_object(json);
    return json;
}
