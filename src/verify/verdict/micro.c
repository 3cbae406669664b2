/* Which micro-batch of theirs is which of ours.  The one of the same number, if
 * it has the same inputs; else the one that has them; if one side has the batch
 * in fewer pieces, several of the other end to end. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/verdict/internal.h"

enum { MAX_INPUTS = 8 /**< of a micro-batch: tokens, targets, ... */ };

/* ---- inputs ---------------------------------------------------------------- */

/* FNV-1a over the bits of the values; goes on from `hash`, so that inputs end to
 * end have the hash of one. */
static uint64_t
hash_values(uint64_t hash, const double *values, uint64_t numel)
{
    for (uint64_t i = 0; i < numel; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (int k = 0; k < 64; k += 8)
            hash = (hash ^ (bits >> k & 255)) * 0x100000001b3u;
    }
    return hash;
}

/* Of one input, called `name`, over the micro-batches from `first`; 0: one has
 * none. */
static uint64_t
hash_input(judging_t *j, fsdp_trace_t *trace, long step, const char *name,
           int first, int count)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int g = first; g < first + count; g++) {
        const record_t *r =
            fsdp_trace_find(trace, step, FSDP_TRACE_INPUT, g, name);
        double *values = verdict_read(j, trace, r);
        if (values == NULL)
            return 0;
        hash = hash_values(hash, values, r->numel);
        fsdp_free(values);
    }
    return hash != 0 ? hash : 1;
}

/** The inputs of a step that both sides have, by both names. */
typedef struct input_names {
    const char *theirs[MAX_INPUTS], *ours[MAX_INPUTS];
    int count;
} input_names_t;

static input_names_t
common_inputs(const judging_t *j, long step, int micro)
{
    input_names_t names = {.count = 0};
    for (size_t i = 0; i < fsdp_trace_count(j->theirs); i++) {
        const record_t *r = fsdp_trace_record(j->theirs, i);
        if (r->phase != FSDP_TRACE_INPUT || r->step != step ||
            r->micro != micro || names.count == MAX_INPUTS)
            continue;
        names.theirs[names.count] = r->name;
        names.ours[names.count] = verdict_names_ours(j->names, r);
        names.count += names.ours[names.count] != NULL;
    }
    return names;
}

/* One number for all of those inputs; 0: some are not there. */
static uint64_t
hash_micros(judging_t *j, bool of_ours, const input_names_t *names, long step,
            int first, int count)
{
    uint64_t all = 0;
    for (int i = 0; i < names->count; i++) {
        uint64_t one =
            of_ours ? hash_input(j, j->ours, step, names->ours[i], first, count)
                    : hash_input(j, j->theirs, step, names->theirs[i], first,
                                 count);
        if (one == 0)
            return 0;
        all = all * 0x9e3779b97f4a7c15u + one;
    }
    return all != 0 ? all : names->count > 0;
}

/* ---- the table ---------------------------------------------------------------- */

static int
by_place(const void *a, const void *b)
{
    const counterpart_t *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->micro > y->micro) - (x->micro < y->micro);
}

/* Every step and micro-batch of the inputs of a trace. */
static counterpart_t *
list_micros(const fsdp_trace_t *trace, size_t *count)
{
    size_t n = fsdp_trace_count(trace), k = 0;
    counterpart_t *list = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        const record_t *r = fsdp_trace_record(trace, i);
        if (r->phase == FSDP_TRACE_INPUT)
            list[k++] = (counterpart_t){.step = r->step, .micro = r->micro};
    }
    if (k > 0)
        qsort(list, k, sizeof *list, by_place);
    *count = 0;
    for (size_t i = 0; i < k; i++)
        if (*count == 0 || by_place(&list[*count - 1], &list[i]) != 0)
            list[(*count)++] = list[i];
    return list;
}

static void
hash_theirs(judging_t *j, counterpart_t *theirs, int n)
{
    input_names_t names = common_inputs(j, theirs[0].step, theirs[0].micro);
    for (int i = 0; i < n; i++)
        theirs[i].hash =
            hash_micros(j, false, &names, theirs[i].step, theirs[i].micro, 1);
}

/* As many on both sides: one by one. */
static void
match_each(judging_t *j, counterpart_t *theirs, counterpart_t *ours, int n)
{
    input_names_t names = common_inputs(j, theirs[0].step, theirs[0].micro);
    for (int i = 0; i < n; i++)
        ours[i].hash =
            hash_micros(j, true, &names, ours[i].step, ours[i].micro, 1);
    for (int i = 0; i < n; i++)
        if (theirs[i].micro == ours[i].micro && theirs[i].hash != 0 &&
            theirs[i].hash == ours[i].hash) {
            theirs[i].first = ours[i].micro;
            theirs[i].count = ours[i].count = 1;
        }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n && theirs[i].count == 0; k++)
            if (ours[k].count == 0 && theirs[i].hash != 0 &&
                theirs[i].hash == ours[k].hash) {
                theirs[i].first = ours[k].micro;
                theirs[i].count = ours[k].count = 1;
            }
}

/* One side has k times as many, in the same order. */
static void
match_merged(judging_t *j, counterpart_t *theirs, int n, counterpart_t *ours,
             int our_n)
{
    input_names_t names = common_inputs(j, theirs[0].step, theirs[0].micro);
    bool ours_more = our_n > n;
    int k = ours_more ? our_n / n : n / our_n;
    for (int i = 0; i < (ours_more ? n : our_n); i++) {
        int t = ours_more ? i : i * k, o = ours_more ? i * k : i;
        uint64_t a = hash_micros(j, false, &names, theirs[t].step,
                                 theirs[t].micro, ours_more ? 1 : k);
        uint64_t b = hash_micros(j, true, &names, ours[o].step, ours[o].micro,
                                 ours_more ? k : 1);
        if (a == 0 || a != b)
            continue;
        for (int part = 0; part < (ours_more ? 1 : k); part++) {
            theirs[t + part].first = ours[o].micro;
            theirs[t + part].count = ours_more ? k : 1;
            theirs[t + part].part = part;
            theirs[t + part].parts = ours_more ? 1 : k;
        }
    }
}

/* How many from `i` are of one step; the numbers must be 0, 1, ... */
static int
of_step(const counterpart_t *list, size_t count, size_t i, bool *dense)
{
    int n = 0;
    *dense = true;
    for (; i + (size_t)n < count && list[i + (size_t)n].step == list[i].step;
         n++)
        *dense &= list[i + (size_t)n].micro == n;
    return n;
}

void
verdict_match_micros(judging_t *j)
{
    size_t our_count, o = 0;
    counterpart_t *ours = list_micros(j->ours, &our_count);
    j->counterpart = list_micros(j->theirs, &j->num_counterparts);
    for (size_t i = 0; i < j->num_counterparts; i++)
        j->counterpart[i].parts = 1;
    for (size_t t = 0; t < j->num_counterparts;) {
        bool dense, our_dense;
        int n = of_step(j->counterpart, j->num_counterparts, t, &dense);
        hash_theirs(j, &j->counterpart[t], n);
        while (o < our_count && ours[o].step < j->counterpart[t].step)
            o++;
        if (o < our_count && ours[o].step == j->counterpart[t].step) {
            int m = of_step(ours, our_count, o, &our_dense);
            if (n == m)
                match_each(j, &j->counterpart[t], &ours[o], n);
            else if (dense && our_dense && (n % m == 0 || m % n == 0))
                match_merged(j, &j->counterpart[t], n, &ours[o], m);
        }
        t += (size_t)n;
    }
    fsdp_free(ours);
}

const counterpart_t *
verdict_counterpart(const judging_t *j, long step, int micro)
{
    counterpart_t key = {.step = step, .micro = micro};
    return j->num_counterparts > 0
               ? bsearch(&key, j->counterpart, j->num_counterparts, sizeof key,
                         by_place)
               : NULL;
}

/* ---- the same data twice ------------------------------------------------- */

static int
by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* How unlikely it is that two draws of such values are the same, in bits: if
 * each is one of the values that occur, all equally likely. */
static double
bits_of(const double *values, uint64_t numel)
{
    double *sorted = fsdp_alloc(FSDP_MEM_OTHER, numel * sizeof *sorted);
    uint64_t distinct = 1;
    memcpy(sorted, values, numel * sizeof *sorted);
    qsort(sorted, numel, sizeof *sorted, by_value);
    for (uint64_t i = 1; i < numel; i++)
        distinct += sorted[i] != sorted[i - 1];
    fsdp_free(sorted);
    return (double)numel * log2((double)distinct);
}

/* All that theirs has of one micro-batch, another rank has too. */
static bool
same_data(judging_t *j, const record_t *record, int other)
{
    input_names_t names = common_inputs(j, record->step, record->micro);
    const record_t *twin = fsdp_trace_find(
        j->theirs, record->step, FSDP_TRACE_INPUT, other, record->name);
    if (twin == NULL || twin->num_pieces == 0 || record->num_pieces == 0 ||
        twin->piece[0].rank == record->piece[0].rank)
        return false;
    uint64_t a =
        hash_input(j, j->theirs, record->step, record->name, record->micro, 1);
    if (a != hash_input(j, j->theirs, record->step, record->name, other, 1))
        return false;
    a = hash_micros(j, false, &names, record->step, record->micro, 1);
    return names.count == 0 ||
           a == hash_micros(j, false, &names, record->step, other, 1);
}

int
verdict_same_input(judging_t *j, const record_t *record)
{
    enum { CHANCE = 24 }; /* bits */
    double *values = verdict_read(j, j->theirs, record);
    bool telling = values != NULL && record->numel > 0 &&
                   bits_of(values, record->numel) >= CHANCE;
    fsdp_free(values);
    const counterpart_t *own =
        verdict_counterpart(j, record->step, record->micro);
    for (size_t i = 0; telling && i < j->num_counterparts; i++) {
        const counterpart_t *c = &j->counterpart[i];
        if (c->step != record->step || c->micro >= record->micro ||
            (own != NULL && own->hash != c->hash))
            continue;
        if (same_data(j, record, c->micro))
            return c->micro;
    }
    return -1;
}
