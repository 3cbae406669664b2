/* The verdict as one JSON object. */

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "verify/verdict/internal.h"
#include "verify/verdict/place.h"

/* NaN and infinity, which JSON has not, as strings: they tell something. */
static void
put_number(fsdp_json_writer_t *w, const char *key, double value)
{
    fsdp_json_key(w, key);
    if (isnan(value))
        fsdp_json_string(w, "nan");
    else if (isinf(value))
        fsdp_json_string(w, value > 0 ? "inf" : "-inf");
    else
        fsdp_json_double(w, value);
}

static void
put_known(fsdp_json_writer_t *w, const char *key, double value, bool known)
{
    if (known) {
        put_number(w, key, value);
    } else {
        fsdp_json_key(w, key);
        fsdp_json_null(w);
    }
}

static void
put_index(fsdp_json_writer_t *w, const record_t *record, uint64_t element)
{
    uint64_t index[FSDP_SAFETENSORS_MAX_DIMS];
    verdict_index(record, element, index);
    fsdp_json_key(w, "index");
    fsdp_json_open_array(w);
    for (int d = 0; d < record->ndim; d++)
        fsdp_json_integer(w, (int64_t)index[d]);
    fsdp_json_close_array(w);
}

static void
put_place(fsdp_json_writer_t *w, const fsdp_verdict_t *v,
          const fsdp_verdict_tensor_t *t)
{
    const record_t *r = t->theirs;
    fsdp_json_put_integer(w, "step", r->step);
    fsdp_json_put_string(w, "phase", fsdp_trace_phase_name(r->phase));
    fsdp_json_key(w, "micro_batch");
    if (r->micro >= 0)
        fsdp_json_integer(w, r->micro);
    else
        fsdp_json_null(w);
    fsdp_json_put_string(w, "unit", verdict_unit(v, r));
    fsdp_json_put_string(w, "name", r->name);
    fsdp_json_put_string(w, "parameter",
                         verdict_is_of_parameter(r->phase) ? r->name : NULL);
    fsdp_json_put_string(w, "our_name", t->ours != NULL ? t->ours->name : NULL);
    fsdp_json_put_string(w, "dtype", fsdp_dtype_name(r->dtype));
    fsdp_json_put_string(w, "our_dtype",
                         t->ours != NULL ? fsdp_dtype_name(t->ours->dtype)
                                         : NULL);
    fsdp_json_put_integer(w, "element", (int64_t)t->element);
    put_index(w, r, t->element);
    fsdp_json_key(w, "rank");
    if (t->rank >= 0)
        fsdp_json_integer(w, t->rank);
    else
        fsdp_json_null(w);
}

static void
put_tensor(fsdp_json_writer_t *w, const char *key, const fsdp_verdict_t *v,
           const fsdp_verdict_tensor_t *t)
{
    fsdp_json_key(w, key);
    if (t == NULL) {
        fsdp_json_null(w);
        return;
    }
    fsdp_json_open_object(w);
    put_place(w, v, t);
    fsdp_json_put_string(w, "why", t->why);
    fsdp_json_put_string(w, "rule", t->rule);
    bool judged = t->rule != NULL;
    put_known(w, "theirs", t->value, judged);
    put_known(w, "expected", t->expected, judged);
    put_known(w, "ours", t->our_value, !isnan(t->our_value));
    put_known(w, "ulps", t->ulps, judged);
    put_known(w, "bound", t->bound, judged);
    put_known(w, "ratio", t->ratio, judged);
    fsdp_json_key(w, "weak");
    fsdp_json_bool(w, t->weak);
    fsdp_json_put_integer(w, "elements_over", (int64_t)t->over);
    fsdp_json_put_integer(w, "elements", (int64_t)t->theirs->numel);
    fsdp_json_key(w, "other_rank");
    if (t->other_rank >= 0)
        fsdp_json_integer(w, t->other_rank);
    else
        fsdp_json_null(w);
    fsdp_json_close_object(w);
}

static void
put_phase(fsdp_json_writer_t *w, const fsdp_verdict_phase_t *p)
{
    fsdp_json_open_object(w);
    fsdp_json_put_string(w, "phase", fsdp_trace_phase_name(p->phase));
    fsdp_json_put_integer(w, "tensors", (int64_t)p->tensors);
    fsdp_json_put_integer(w, "equal", (int64_t)p->equal);
    fsdp_json_put_integer(w, "within", (int64_t)p->within);
    fsdp_json_put_integer(w, "wrong", (int64_t)p->wrong);
    fsdp_json_put_integer(w, "unchecked", (int64_t)p->unchecked);
    fsdp_json_put_integer(w, "weak", (int64_t)p->weak);
    put_known(w, "worst_ratio", p->worst_ratio, p->worst != NULL);
    fsdp_json_put_string(w, "worst_rule",
                         p->worst != NULL ? p->worst->rule : NULL);
    fsdp_json_put_string(w, "worst_name",
                         p->worst != NULL ? p->worst->theirs->name : NULL);
    if (!isnan(p->theirs_to_double)) {
        put_number(w, "theirs_to_double", p->theirs_to_double);
        put_number(w, "ours_to_double", p->ours_to_double);
    }
    if (!isnan(p->double_to_double))
        put_number(w, "double_to_double", p->double_to_double);
    fsdp_json_close_object(w);
}

static void
put_cause(fsdp_json_writer_t *w, const fsdp_cause_t *cause)
{
    fsdp_json_open_object(w);
    fsdp_json_put_string(w, "cause", cause->id);
    fsdp_json_put_string(w, "text", cause->text);
    put_number(w, "ratio", cause->ratio);
    fsdp_json_close_object(w);
}

static void
put_missing(fsdp_json_writer_t *w, const fsdp_verdict_missing_t *m)
{
    fsdp_json_open_object(w);
    fsdp_json_put_string(w, "only", m->of_ours ? "ours" : "theirs");
    fsdp_json_put_string(w, "phase", fsdp_trace_phase_name(m->phase));
    fsdp_json_put_integer(w, "tensors", (int64_t)m->count);
    fsdp_json_put_string(w, "first", m->first);
    fsdp_json_close_object(w);
}

static void
put_lists(fsdp_json_writer_t *w, const fsdp_verdict_t *v)
{
    fsdp_json_key(w, "phases");
    fsdp_json_open_array(w);
    for (int i = 0; i < v->num_phases; i++)
        put_phase(w, &v->phase[i]);
    fsdp_json_close_array(w);
    fsdp_json_key(w, "diagnosis");
    fsdp_json_open_array(w);
    for (int i = 0; i < v->num_causes; i++)
        put_cause(w, &v->cause[i]);
    fsdp_json_close_array(w);
    fsdp_json_key(w, "missing");
    fsdp_json_open_array(w);
    for (int i = 0; i < v->num_missing; i++)
        put_missing(w, &v->missing[i]);
    fsdp_json_close_array(w);
    fsdp_json_key(w, "notes");
    fsdp_json_open_array(w);
    for (int i = 0; i < v->num_notes; i++)
        fsdp_json_string(w, v->note[i]);
    fsdp_json_close_array(w);
}

void
fsdp_verdict_print_json(const fsdp_verdict_t *v, FILE *out)
{
    fsdp_json_writer_t *w = fsdp_json_writer_create();
    fsdp_json_open_object(w);
    fsdp_json_put_string(w, "verdict", fsdp_verdict_kind_name(v->kind));
    fsdp_json_put_string(w, "theirs", fsdp_trace_path(v->theirs));
    fsdp_json_put_string(w, "ours", fsdp_trace_path(v->ours));
    put_tensor(w, "first_divergence", v, v->first_wrong);
    put_tensor(w, "first_difference", v, v->first_difference);
    put_lists(w, v);
    if (v->of_double != NULL) {
        fsdp_json_key(w, "theirs_double");
        fsdp_json_open_object(w);
        fsdp_json_put_string(w, "verdict",
                             fsdp_verdict_kind_name(v->of_double->kind));
        put_tensor(w, "first_divergence", v->of_double,
                   v->of_double->first_wrong);
        fsdp_json_close_object(w);
    }
    fsdp_json_close_object(w);
    fprintf(out, "%s\n", fsdp_json_writer_text(w));
    fsdp_json_writer_destroy(&w);
}
