/* The verdict, for a reader. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "verify/verdict/internal.h"
#include "verify/verdict/place.h"

/* Names come from files: bytes that a terminal would obey are shown as "?". */
static void
print_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        putc((unsigned char)*text < ' ' || *text == 127 ? '?' : *text, out);
}

static void
print_side(FILE *out, const char *what, const fsdp_trace_t *trace)
{
    const fsdp_trace_about_t *a = fsdp_trace_about(trace);
    fprintf(out, "%s ", what);
    print_text(out, fsdp_trace_path(trace));
    fprintf(out, ": ");
    print_text(out, a->producer != NULL ? a->producer : "unknown producer");
    if (a->api != NULL && strcmp(a->api, "none") != 0) {
        fprintf(out, ", ");
        print_text(out, a->api);
    }
    fprintf(out, ", %d rank%s", a->world_size, a->world_size == 1 ? "" : "s");
    if (a->num_ranks < a->world_size)
        fprintf(out, " (%d recorded)", a->num_ranks);
    fprintf(out, ", %zu tensors\n", fsdp_trace_count(trace));
}

static void
print_ratio(FILE *out, double ratio)
{
    if (isinf(ratio))
        fprintf(out, "%12s", "infinite");
    else
        fprintf(out, "%12.3g", ratio);
}

/* The ratio, and where. */
static void
print_worst(FILE *out, const fsdp_verdict_phase_t *phase)
{
    const record_t *r = phase->worst->theirs;
    print_ratio(out, phase->worst_ratio);
    if (phase->worst_ratio == 0)
        return;
    fprintf(out, "  step %ld, ", r->step);
    print_text(out, r->name);
}

static void
print_phases(const fsdp_verdict_t *v, FILE *out)
{
    fprintf(out, "\n%-22s%8s%8s%8s%8s%11s%12s\n", "phase", "tensors", "equal",
            "within", "wrong", "unchecked", "worst ratio");
    for (int i = 0; i < v->num_phases; i++) {
        const fsdp_verdict_phase_t *p = &v->phase[i];
        fprintf(out, "%-22s%8zu%8zu%8zu%8zu%11zu",
                fsdp_trace_phase_name(p->phase), p->tensors, p->equal,
                p->within, p->wrong, p->unchecked);
        if (p->worst != NULL)
            print_worst(out, p);
        fprintf(out, p->weak > 0 ? "  (weak: %zu)\n" : "\n", p->weak);
    }
}

/* How far from ours in float64; how much nearer theirs in float64 comes. */
static void
print_doubles(const fsdp_verdict_t *v, FILE *out)
{
    bool both = v->of_double != NULL, any = false;
    for (int i = 0; i < v->num_phases; i++) {
        const fsdp_verdict_phase_t *p = &v->phase[i];
        if (isnan(p->theirs_to_double))
            continue;
        if (!any)
            fprintf(out,
                    "\nroot mean squares of differences from ours in "
                    "float64\n%-22s%12s%12s%12s%s\n",
                    "phase", "theirs", "ours", "ratio",
                    both ? "    theirs64  shrinks by" : "");
        any = true;
        fprintf(out, "%-22s%12.3g%12.3g", fsdp_trace_phase_name(p->phase),
                p->theirs_to_double, p->ours_to_double);
        if (p->ours_to_double > 0)
            fprintf(out, "%12.3g", p->theirs_to_double / p->ours_to_double);
        else
            fprintf(out, "%12s", "");
        if (!isnan(p->double_to_double))
            fprintf(out, "%12.3g", p->double_to_double);
        if (p->double_to_double > 0 && p->theirs_to_double > 0)
            fprintf(out, "      2^%.1f",
                    log2(p->theirs_to_double / p->double_to_double));
        fprintf(out, "\n");
    }
}

static void
print_index(FILE *out, const record_t *record, uint64_t element)
{
    uint64_t index[FSDP_SAFETENSORS_MAX_DIMS];
    verdict_index(record, element, index);
    fprintf(out, "[");
    for (int d = 0; d < record->ndim; d++)
        fprintf(out, "%s%" PRIu64, d > 0 ? ", " : "", index[d]);
    fprintf(out, "]");
}

static void
print_place(const fsdp_verdict_t *v, const fsdp_verdict_tensor_t *t, FILE *out)
{
    const record_t *r = t->theirs;
    const char *unit = verdict_unit(v, r);
    fprintf(out, "step %ld, %s", r->step, fsdp_trace_phase_name(r->phase));
    if (strcmp(r->name, fsdp_trace_phase_name(r->phase)) != 0) {
        fprintf(out, " ");
        print_text(out, r->name);
    }
    if (r->micro >= 0)
        fprintf(out, ", micro-batch %d", r->micro);
    if (verdict_is_of_parameter(r->phase) && unit != NULL) {
        fprintf(out, " (unit ");
        print_text(out, unit);
        fprintf(out, ")");
    }
    if (t->ours != NULL && strcmp(t->ours->name, r->name) != 0) {
        fprintf(out, " (ours: ");
        print_text(out, t->ours->name);
        fprintf(out, ")");
    }
    fprintf(out, "\n");
}

static void
print_difference(const fsdp_verdict_tensor_t *t, FILE *out)
{
    fprintf(out, "    theirs %.9g, expected %.9g: %s\n", t->value, t->expected,
            t->rule);
    if (!isnan(t->our_value))
        fprintf(out, "    ours   %.9g\n", t->our_value);
    if (t->other_rank >= 0)
        return;
    fprintf(out, "    %.4g ulps apart", t->ulps);
    if (isinf(t->ratio) && t->bound == 0)
        fprintf(out, "; no rounding is allowed here");
    else
        fprintf(out, "; the bound is %.3g, the worst ratio to it %.4g",
                t->bound, t->ratio);
    if (t->over > 0)
        fprintf(out, "; beyond it: %" PRIu64 " of %" PRIu64 " elements",
                t->over, t->theirs->numel);
    fprintf(out, "\n");
}

static void
print_tensor(const fsdp_verdict_t *v, const char *what,
             const fsdp_verdict_tensor_t *t, FILE *out)
{
    fprintf(out, "%s: ", what);
    print_place(v, t, out);
    if (t->why != NULL) {
        fprintf(out, "    %s", t->why);
        if (t->other_rank >= 0)
            fprintf(out, ": ranks %d and %d", t->rank, t->other_rank);
        fprintf(out, "\n");
    }
    if (t->theirs->numel == 0 || (isnan(t->value) && t->rule == NULL))
        return;
    if (t->why == NULL || t->over > 0 || t->other_rank >= 0) {
        if (!isnan(t->value) || !isnan(t->expected)) {
            fprintf(out, "    element %" PRIu64 " ", t->element);
            print_index(out, t->theirs, t->element);
            if (t->rank >= 0)
                fprintf(out, ", rank %d", t->rank);
            fprintf(out, "\n");
        }
        if (t->rule != NULL)
            print_difference(t, out);
    } else if (t->ours != NULL) {
        fprintf(out, "    %s in theirs, %s in ours\n",
                fsdp_dtype_name(t->theirs->dtype),
                fsdp_dtype_name(t->ours->dtype));
    }
}

static void
print_causes(const fsdp_verdict_t *v, FILE *out)
{
    if (v->num_causes == 0)
        fprintf(out, "diagnosis: none of the known mistakes explains all of "
                     "it\n");
    for (int i = 0; i < v->num_causes; i++)
        fprintf(out, "%s %s: %s\n",
                i == 0 ? "diagnosis:" : "       or:", v->cause[i].id,
                v->cause[i].text);
}

static void
print_missing(const fsdp_verdict_t *v, FILE *out)
{
    for (int i = 0; i < v->num_missing; i++) {
        const fsdp_verdict_missing_t *m = &v->missing[i];
        fprintf(out, "only %s: %zu of %s, ", m->of_ours ? "ours" : "theirs",
                m->count, fsdp_trace_phase_name(m->phase));
        print_text(out, m->first);
        fprintf(out, m->count > 1 ? " first\n" : "\n");
    }
}

static void
print_of_double(const fsdp_verdict_t *v, FILE *out)
{
    fprintf(out, "theirs in float64: %s\n",
            v->kind == FSDP_VERDICT_WRONG
                ? "BUG: a difference does not shrink as rounding does"
                : "all differences shrink as rounding does");
    if (v->first_wrong != NULL)
        print_tensor(v, "first that does not", v->first_wrong, out);
}

void
fsdp_verdict_print(const fsdp_verdict_t *v, FILE *out)
{
    print_side(out, "theirs:", v->theirs);
    print_side(out, "ours:  ", v->ours);
    print_phases(v, out);
    print_doubles(v, out);
    fprintf(out, "\n");
    print_missing(v, out);
    for (int i = 0; i < v->num_notes; i++) {
        fprintf(out, "note: ");
        print_text(out, v->note[i]);
        fprintf(out, "\n");
    }
    if (v->first_wrong != NULL) {
        print_tensor(v, "first divergence", v->first_wrong, out);
        print_causes(v, out);
    } else if (v->first_difference != NULL &&
               v->first_difference->kind != FSDP_VERDICT_UNCHECKED) {
        print_tensor(v, "first difference", v->first_difference, out);
    }
    if (v->of_double != NULL)
        print_of_double(v->of_double, out);
    fprintf(out, "verdict: %s\n",
            v->kind == FSDP_VERDICT_WRONG ? "WRONG"
                                          : fsdp_verdict_kind_name(v->kind));
}
