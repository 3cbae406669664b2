/* trace.json, which anybody may have written. */

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/fields.h"
#include "verify/trace/internal.h"

/* ---- the world ---------------------------------------------------------- */

static int
by_number(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) -
           (*(const int *)a < *(const int *)b);
}

static void
read_ranks(trace_fields_t *r, const fsdp_json_t *all, trace_about_t *t)
{
    const fsdp_json_t *ranks = trace_field_array(r, all, "ranks");
    int64_t rank = 0;
    t->rank = trace_field_room(ranks, sizeof *t->rank, &t->about.num_ranks);
    for (int i = 0; i < t->about.num_ranks; i++) {
        if (!fsdp_json_get_integer(fsdp_json_at(ranks, (size_t)i), &rank) ||
            rank < 0 || rank >= t->about.world_size)
            trace_field_bad(r, "ranks", "whole numbers below \"world_size\"");
        t->rank[i] = (int)rank;
    }
    qsort(t->rank, (size_t)t->about.num_ranks, sizeof *t->rank, by_number);
    for (int i = 1; i < t->about.num_ranks; i++)
        if (t->rank[i] == t->rank[i - 1])
            trace_field_bad(r, "ranks", "each rank once");
    t->about.rank = t->rank;
}

static void
read_world(trace_fields_t *r, const fsdp_json_t *all, trace_about_t *t)
{
    static const char *const sync[] = {"each", "last", "last-all-reduce", NULL};
    fsdp_trace_about_t *a = &t->about;
    a->producer = trace_field_text(r, all, "producer");
    a->api = trace_field_text(r, all, "api");
    a->world_size =
        (int)trace_field_count(r, all, "world_size", 1, TRACE_MAX_WORLD, 0);
    if (a->world_size == 0)
        trace_field_bad(r, "world_size", "given: the number of ranks");
    const fsdp_json_t *mesh = trace_field_object(r, all, "mesh");
    a->replicas =
        (int)trace_field_count(r, mesh, "replicate", 1, TRACE_MAX_WORLD, 1) *
        (mesh != NULL);
    a->shards =
        (int)trace_field_count(r, mesh, "shard", 1, TRACE_MAX_WORLD, 1) *
        (mesh != NULL);
    a->tensor =
        (int)trace_field_count(r, mesh, "tensor", 1, TRACE_MAX_WORLD, 1) *
        (mesh != NULL);
    if (mesh != NULL &&
        (int64_t)a->replicas * a->shards * a->tensor != a->world_size)
        trace_field_bad(r, "mesh",
                        "dimensions whose product is \"world_size\"");
    a->micro_batches =
        (int)trace_field_count(r, all, "micro_batches", 1, TRACE_MAX_MICRO, 0);
    a->gradient_sync =
        trace_field_word(r, all, "gradient_sync", sync,
                         "one of \"each\", \"last\", \"last-all-reduce\"");
    read_ranks(r, all, t);
}

/* ---- what was trained --------------------------------------------------- */

static void
read_steps(trace_fields_t *r, const fsdp_json_t *all, trace_about_t *t)
{
    const fsdp_json_t *steps = trace_field_array(r, all, "steps");
    t->step = trace_field_room(steps, sizeof *t->step, &t->about.num_steps);
    t->about.step = t->step;
    for (int i = 0; i < t->about.num_steps; i++) {
        const fsdp_json_t *step = fsdp_json_at(steps, (size_t)i);
        if (!fsdp_json_is(step, FSDP_JSON_OBJECT))
            trace_field_bad(r, "steps", "objects with \"step\" and \"lr\"");
        t->step[i].step = trace_field_count(r, step, "step", 1, 1000000000, 0);
        t->step[i].lr = trace_field_number(r, step, "lr", 0, HUGE_VAL, NAN);
        if (t->step[i].step <= (i > 0 ? t->step[i - 1].step : 0))
            trace_field_bad(r, "steps",
                            "in ascending order, each once, from 1");
    }
}

/* True: it is an array of sizes whose product is reasonable. */
static bool
parse_shape(const fsdp_json_t *shape, int *ndim, uint64_t *size,
            uint64_t *numel)
{
    *numel = 1;
    if (!fsdp_json_is(shape, FSDP_JSON_ARRAY) ||
        fsdp_json_size(shape) > FSDP_SAFETENSORS_MAX_DIMS)
        return false;
    *ndim = (int)fsdp_json_size(shape);
    for (int d = 0; d < *ndim; d++) {
        int64_t number;
        if (!fsdp_json_get_integer(fsdp_json_at(shape, (size_t)d), &number) ||
            number < 0 ||
            __builtin_mul_overflow(*numel, (uint64_t)number, numel) ||
            *numel > INT64_MAX / 8)
            return false;
        size[d] = (uint64_t)number;
    }
    return true;
}

static void
read_parameter(trace_fields_t *r, const fsdp_json_t *value,
               fsdp_trace_parameter_t *parameter)
{
    const fsdp_json_t *shape = trace_field(r, value, "shape");
    parameter->name = trace_field_text(r, value, "name");
    parameter->unit = trace_field_text(r, value, "unit");
    parameter->dtype = trace_field_dtype(r, value, "dtype");
    parameter->weight_decay =
        trace_field_number(r, value, "weight_decay", 0, HUGE_VAL, NAN);
    parameter->lr_factor =
        trace_field_number(r, value, "lr_factor", 0, HUGE_VAL, NAN);
    if (parameter->name == NULL)
        trace_field_bad(r, "parameters", "objects with a \"name\"");
    if (shape != NULL && !parse_shape(shape, &parameter->ndim, parameter->shape,
                                      &parameter->numel))
        trace_field_bad(r, "shape", "an array of up to 8 whole numbers");
}

static void
read_names(trace_fields_t *r, const fsdp_json_t *all, trace_about_t *t)
{
    const fsdp_json_t *list = trace_field_array(r, all, "parameters");
    fsdp_trace_about_t *a = &t->about;
    t->parameter =
        trace_field_room(list, sizeof *t->parameter, &a->num_parameters);
    for (int i = 0; i < a->num_parameters && r->status == FSDP_OK; i++)
        read_parameter(r, fsdp_json_at(list, (size_t)i), &t->parameter[i]);
    a->parameter = t->parameter;

    list = trace_field_array(r, all, "units");
    t->unit = trace_field_room(list, sizeof *t->unit, &a->num_units);
    for (int i = 0; i < a->num_units; i++) {
        t->unit[i] = fsdp_json_get_string(fsdp_json_at(list, (size_t)i));
        if (t->unit[i] == NULL)
            trace_field_bad(r, "units", "strings");
    }
    a->unit = t->unit;
}

static void
read_model(trace_fields_t *r, const fsdp_json_t *all, trace_about_t *t)
{
    const fsdp_json_t *model = trace_field_object(r, all, "model");
    const fsdp_json_t *loss = trace_field_object(r, all, "loss");
    fsdp_trace_about_t *a = &t->about;
    a->model_type = trace_field_text(r, model, "type");
    a->model_config =
        (const struct fsdp_json *)trace_field_object(r, model, "config");
    a->loss = trace_field_text(r, loss, "kind");
    a->ignore_index =
        trace_field_count(r, loss, "ignore_index", INT32_MIN, INT32_MAX, -100);
    a->average = trace_field_text(r, loss, "average");
    a->loss_scale = trace_field_number(r, loss, "scale", 0, HUGE_VAL, NAN);
    a->dropout = trace_field_number(r, all, "dropout", 0, 0.99, NAN);
    a->seed = trace_field_count(r, all, "seed", 0, LONG_MAX, -1);
}

/* ---- the optimizer ------------------------------------------------------ */

static void
read_betas(trace_fields_t *r, const fsdp_json_t *optimizer,
           fsdp_adamw_options_t *o)
{
    const fsdp_json_t *betas = trace_field_array(r, optimizer, "betas");
    if (betas == NULL)
        return;
    if (fsdp_json_size(betas) != 2 ||
        !fsdp_json_get_number(fsdp_json_at(betas, 0), &o->beta1) ||
        !fsdp_json_get_number(fsdp_json_at(betas, 1), &o->beta2) ||
        !(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        trace_field_bad(r, "betas", "two numbers from 0 to below 1");
}

static void
read_optimizer(trace_fields_t *r, const fsdp_json_t *all, fsdp_trace_about_t *a)
{
    const fsdp_json_t *o = trace_field_object(r, all, "optimizer");
    a->sgd = fsdp_sgd_options_default();
    a->adamw = fsdp_adamw_options_default();
    a->optimizer_name = trace_field_text(r, o, "name");
    if (a->optimizer_name == NULL)
        return;
    if (strcmp(a->optimizer_name, "sgd") == 0)
        a->optimizer = FSDP_TRACE_SGD;
    if (strcmp(a->optimizer_name, "adamw") == 0)
        a->optimizer = FSDP_TRACE_ADAMW;
    a->sgd.momentum = trace_field_number(r, o, "momentum", 0, HUGE_VAL, 0);
    a->sgd.dampening =
        trace_field_number(r, o, "dampening", -HUGE_VAL, HUGE_VAL, 0);
    a->sgd.nesterov = trace_field_bool(r, o, "nesterov", false);
    read_betas(r, o, &a->adamw);
    a->adamw.eps = trace_field_number(r, o, "eps", 0, HUGE_VAL, 1e-8);
    double decay = trace_field_number(r, o, "weight_decay", 0, HUGE_VAL, NAN);
    if (!isnan(decay))
        a->sgd.weight_decay = a->adamw.weight_decay = decay;
}

static void
read_clipping(trace_fields_t *r, const fsdp_json_t *all, fsdp_trace_about_t *a)
{
    const fsdp_json_t *type = fsdp_json_member(all, "norm_type");
    const char *word = fsdp_json_get_string(type);
    /* null: none; missing: unknown */
    double none = fsdp_json_member(all, "grad_clip") != NULL ? 0 : NAN;
    a->grad_clip = trace_field_number(r, all, "grad_clip", 0, HUGE_VAL, none);
    a->norm_type = INFINITY;
    if (word == NULL || strcmp(word, "inf") != 0)
        a->norm_type = trace_field_number(r, all, "norm_type", 0, HUGE_VAL, 2);
}

/* ---- arithmetic --------------------------------------------------------- */

static void
read_arithmetic(trace_fields_t *r, const fsdp_json_t *all,
                fsdp_trace_about_t *a)
{
    static const char *const averaging[] = {"sum-then-divide", "premultiply",
                                            "pre-post", NULL};
    static const char *const order[] = {"tree", "rank", "ring", "mpi", NULL};
    const fsdp_json_t *precision = trace_field_object(r, all, "precision");
    a->has_precision = precision != NULL;
    a->dtype = trace_field_dtype(r, precision, "dtype");
    a->precision = (fsdp_mixed_precision_policy_t){
        .param_dtype = trace_field_dtype(r, precision, "param_dtype"),
        .reduce_dtype = trace_field_dtype(r, precision, "reduce_dtype"),
        .output_dtype = trace_field_dtype(r, precision, "output_dtype"),
        .cast_forward_inputs =
            trace_field_bool(r, precision, "cast_forward_inputs", true),
    };
    a->averaging = trace_field_word(
        r, all, "averaging", averaging,
        "one of \"sum-then-divide\", \"premultiply\", \"pre-post\"");
    a->reduce_order =
        trace_field_word(r, all, "reduce_order", order,
                         "one of \"tree\", \"rank\", \"ring\", \"mpi\"");
    a->force_sum = trace_field_bool(r, all, "force_sum", false);
    a->divide_factor =
        trace_field_number(r, all, "divide_factor", 1e-300, 1e300, NAN);
}

static void
read_head(trace_fields_t *r, const fsdp_json_t *all)
{
    const char *format = trace_field_text(r, all, "format");
    if (format == NULL || strcmp(format, "libfsdp-trace") != 0)
        trace_field_bad(r, "format", "\"libfsdp-trace\"");
    if (trace_field_count(r, all, "version", 0, INT32_MAX, 0) != TRACE_VERSION)
        trace_field_bad(r, "version", "1");
}

fsdp_status_t
trace_about_parse(const char *name, const char *text, size_t length,
                  trace_about_t *about)
{
    trace_fields_t r = {name, FSDP_OK};
    *about = (trace_about_t){0};
    r.status = fsdp_json_parse(name, text, length, &about->document);
    if (r.status != FSDP_OK)
        return r.status;
    const fsdp_json_t *all = about->document;
    if (!fsdp_json_is(all, FSDP_JSON_OBJECT))
        return fsdp_error(FSDP_ERR_INPUT, "%s: it holds no object", name);
    read_head(&r, all);
    read_world(&r, all, about);
    read_steps(&r, all, about);
    read_names(&r, all, about);
    read_model(&r, all, about);
    read_optimizer(&r, all, &about->about);
    read_clipping(&r, all, &about->about);
    read_arithmetic(&r, all, &about->about);
    return r.status;
}

void
trace_about_free(trace_about_t *about)
{
    fsdp_json_destroy(&about->document);
    fsdp_free(about->rank);
    fsdp_free(about->step);
    fsdp_free(about->parameter);
    fsdp_free(about->unit);
    *about = (trace_about_t){0};
}
