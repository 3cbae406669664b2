/* A tensor against ours, against its own copies, against what is expected. */

#include <math.h>
#include <string.h>

#include "verify/value.h"
#include "verify/verdict/internal.h"

/* ---- what is found ----------------------------------------------------------- */

/* The place that is told: value, owner, what we have there. */
static void
point_at(judging_t *j, fsdp_verdict_tensor_t *tensor, uint64_t element,
         const double *values, const int *owner)
{
    double *ours = verdict_read_ours(j, tensor->theirs);
    tensor->element = element;
    tensor->value = values[element];
    tensor->rank = owner[element];
    tensor->our_value = ours != NULL ? ours[element] : (double)NAN;
    fsdp_free(ours);
}

static void
call_wrong(fsdp_verdict_tensor_t *tensor, const char *why)
{
    tensor->kind = FSDP_VERDICT_WRONG;
    tensor->why = why;
}

/* ---- meeting ------------------------------------------------------------------ */

/* Of what the contract gives a type; losses and activations may have any. */
static bool
type_matters(const judging_t *j, const record_t *record)
{
    switch (record->phase) {
    case FSDP_TRACE_UNIT_OUTPUT:
        return strcmp(record->name, "(root)") == 0 &&
               j->their_about->has_precision &&
               j->their_about->precision.output_dtype != FSDP_DTYPE_NONE;
    case FSDP_TRACE_GATHERED_PARAMETER:
    case FSDP_TRACE_GRAD:
    case FSDP_TRACE_CLIPPED_GRAD:
    case FSDP_TRACE_PARAMETER:
    case FSDP_TRACE_EXP_AVG:
    case FSDP_TRACE_EXP_AVG_SQ:
    case FSDP_TRACE_MOMENTUM_BUFFER:
        return true;
    default:
        return false;
    }
}

/* Under another policy: what units compute with is in a type coarser than was
 * meant.  What follows from that has other types, too, and is not told again. */
static bool
is_coarser(const fsdp_verdict_tensor_t *tensor)
{
    fsdp_dtype_t ours = tensor->ours->dtype, theirs = tensor->theirs->dtype;
    return tensor->theirs->phase == FSDP_TRACE_GATHERED_PARAMETER &&
           value_is_floating(ours) && value_is_floating(theirs) &&
           value_roundoff(theirs) > value_roundoff(ours);
}

/* The same kind of run, and other types. */
static bool
types_differ(const judging_t *j, const fsdp_verdict_tensor_t *tensor)
{
    const fsdp_trace_about_t *a = j->our_about, *b = j->their_about;
    if (tensor->theirs->dtypes_differ)
        return true;
    if (tensor->ours == NULL || tensor->ours->dtype == tensor->theirs->dtype ||
        a->dtype == FSDP_DTYPE_NONE || a->dtype != b->dtype)
        return false;
    if (a->has_precision && b->has_precision &&
        (a->precision.param_dtype != b->precision.param_dtype ||
         a->precision.output_dtype != b->precision.output_dtype))
        return is_coarser(tensor);
    return type_matters(j, tensor->theirs);
}

/* Elements that no rank has, though all ranks have some. */
static bool
find_hole(const judging_t *j, const record_t *record, const int *owner,
          uint64_t *element)
{
    if (record->num_pieces < j->their_about->world_size)
        return false;
    for (uint64_t i = 0; i < record->numel; i++)
        if (owner[i] < 0) {
            *element = i;
            return true;
        }
    return false;
}

static bool
equal_bits(const double *a, const double *b, uint64_t numel)
{
    for (uint64_t i = 0; i < numel; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 &&
            !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Whole numbers are the same in int32 and int64. */
static bool
same_type(const record_t *a, const record_t *b)
{
    return a->dtype == b->dtype || (!fsdp_dtype_is_floating(a->dtype) &&
                                    !fsdp_dtype_is_floating(b->dtype));
}

static void
meet_ours(judging_t *j, fsdp_verdict_tensor_t *tensor, const double *values)
{
    double *ours = verdict_read_ours(j, tensor->theirs);
    if (ours == NULL)
        tensor->ours = NULL;
    else if (same_type(tensor->theirs, tensor->ours) &&
             !tensor->theirs->dtypes_differ &&
             equal_bits(values, ours, tensor->theirs->numel))
        tensor->kind = FSDP_VERDICT_EQUAL;
    fsdp_free(ours);
}

/* Two ranks' copies of an element. */
static void
meet_conflict(judging_t *j, fsdp_verdict_tensor_t *tensor,
              const fsdp_trace_conflict_t *conflict, const double *values,
              const int *owner)
{
    point_at(j, tensor, conflict->element, values, owner);
    tensor->rank = conflict->rank[0];
    tensor->value = conflict->value[0];
    tensor->other_rank = conflict->rank[1];
    tensor->other_value = tensor->expected = conflict->value[1];
    tensor->rule = "the copy of another rank";
    tensor->ratio = INFINITY;
    tensor->ulps =
        verdict_ulps(tensor->theirs->dtype, tensor->value, tensor->other_value);
    call_wrong(tensor, "two ranks have different copies of it");
}

void
verdict_meet(judging_t *j, fsdp_verdict_tensor_t *tensor)
{
    const record_t *record = tensor->theirs;
    fsdp_trace_conflict_t conflict;
    uint64_t hole;
    double *values = fsdp_alloc(FSDP_MEM_OTHER, record->numel * sizeof *values);
    int *owner = fsdp_alloc(FSDP_MEM_OTHER, record->numel * sizeof *owner);
    j->status = fsdp_trace_read(j->theirs, record, values, owner, &conflict);
    tensor->ours = verdict_our_record(j, record);
    if (j->status == FSDP_OK && tensor->ours != NULL)
        meet_ours(j, tensor, values);
    if (j->status == FSDP_OK && record->numel > 0) {
        if (conflict.found) {
            meet_conflict(j, tensor, &conflict, values, owner);
        } else if (types_differ(j, tensor)) {
            point_at(j, tensor, 0, values, owner);
            call_wrong(tensor, "its type is another");
        } else if (find_hole(j, record, owner, &hole)) {
            point_at(j, tensor, hole, values, owner);
            call_wrong(tensor, "no rank has this element");
        }
    }
    fsdp_free(values);
    fsdp_free(owner);
}

/* ---- judging ------------------------------------------------------------------- */

/** What was met on the way through a tensor. */
typedef struct finding {
    double ratio;
    uint64_t worst, first, over;
    bool claimed; /**< some element had a bound */
} finding_t;

static finding_t
look_through(const double *values, const int *owner, const expected_t *expected,
             uint64_t numel)
{
    finding_t f = {.ratio = -1};
    for (uint64_t i = 0; i < numel; i++) {
        if (owner[i] < 0 || isinf(expected->bound[i]))
            continue;
        double r =
            verdict_ratio(values[i], expected->value[i], expected->bound[i]);
        f.claimed = true;
        if (r > f.ratio) {
            f.ratio = r;
            f.worst = i;
        }
        if (r > 1 && f.over++ == 0)
            f.first = i;
    }
    return f;
}

/* Does it tell more than what is known of the tensor? */
static bool
is_worse(const fsdp_verdict_tensor_t *tensor, const finding_t *f)
{
    if (tensor->kind == FSDP_VERDICT_WRONG)
        return false;
    return f->over > 0 || tensor->rule == NULL || f->ratio > tensor->ratio;
}

static void
take(judging_t *j, fsdp_verdict_tensor_t *tensor, const finding_t *f,
     const expected_t *expected, const double *values, const int *owner)
{
    uint64_t at = f->over > 0 ? f->first : f->worst;
    point_at(j, tensor, at, values, owner);
    tensor->expected = expected->value[at];
    tensor->bound = expected->bound[at];
    tensor->ulps =
        verdict_ulps(tensor->theirs->dtype, tensor->value, tensor->expected);
    tensor->ratio = f->ratio;
    tensor->over = f->over;
    tensor->rule = expected->rule;
    tensor->weak = expected->weak;
    if (f->over > 0)
        call_wrong(tensor, "it is further away than rounding can take it");
}

/* What the earliest of the wrong tensors should be, for its explanation. */
static void
keep(judging_t *j, const fsdp_verdict_tensor_t *tensor, expected_t *expected)
{
    if (j->kept_of != NULL && j->kept_of <= tensor)
        return;
    expected_free(&j->kept);
    j->kept = *expected;
    j->kept_of = tensor;
    *expected = (expected_t){0};
}

void
verdict_judge(judging_t *j, fsdp_verdict_tensor_t *tensor, expected_t *expected)
{
    const record_t *record = tensor->theirs;
    double *values = fsdp_alloc(FSDP_MEM_OTHER, record->numel * sizeof *values);
    int *owner = fsdp_alloc(FSDP_MEM_OTHER, record->numel * sizeof *owner);
    if (j->status == FSDP_OK)
        j->status = fsdp_trace_read(j->theirs, record, values, owner, NULL);
    if (j->status == FSDP_OK) {
        finding_t f = look_through(values, owner, expected, record->numel);
        if ((f.claimed || record->numel == 0) &&
            tensor->kind == FSDP_VERDICT_UNCHECKED)
            tensor->kind = FSDP_VERDICT_WITHIN_ROUNDING;
        if (f.claimed && is_worse(tensor, &f)) {
            take(j, tensor, &f, expected, values, owner);
            if (f.over > 0)
                keep(j, tensor, expected);
        }
    }
    fsdp_free(values);
    fsdp_free(owner);
    expected_free(expected);
}
