/* In which order things happened: on each rank as it says, or as the page on the
 * format has it; over the ranks so that what several share comes after all that
 * any of them met before it. */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/memory.h"
#include "verify/trace/internal.h"

/* ---- one rank, without an order of its own ------------------------------- */

/* What items are sorted by, most important first. */
enum { KEYS = 6 };
typedef struct keyed {
    int64_t key[KEYS];
    trace_item_t *item;
} keyed_t;

/* The place of the item's unit; the root's forward begins first and ends last. */
static int64_t
unit_of(const trace_item_t *item, bool *is_root, int *call)
{
    const trace_name_t *name = item->name;
    const char *mark = strrchr(name->text, '#');
    *call = 0;
    *is_root = strncmp(name->text, "(root)", 6) == 0;
    if (trace_phase_is_of_parameter(item->phase))
        return name->of_unit >= 0 ? name->of_unit : INT_MAX;
    if (mark != NULL)
        *call = (int)strtol(mark + 1, NULL, 10);
    return name->unit >= 0 ? name->unit : INT_MAX;
}

static void
key_forward(keyed_t *k)
{
    const trace_item_t *item = k->item;
    bool is_root;
    int call;
    int64_t unit = unit_of(item, &is_root, &call);
    if (is_root)
        unit = item->phase == FSDP_TRACE_UNIT_OUTPUT ? INT64_MAX : -1;
    k->key[3] = unit;
    k->key[4] = call;
}

static void
key_backward(keyed_t *k)
{
    const trace_item_t *item = k->item;
    bool is_root;
    int call;
    int64_t unit = -unit_of(item, &is_root, &call);
    if (is_root)
        unit = item->phase == FSDP_TRACE_OUTPUT_GRAD ? INT64_MIN : INT64_MAX;
    k->key[3] = unit;
    k->key[4] = -call;
}

static keyed_t
key_of(trace_item_t *item)
{
    bool micro = trace_phase_has_micro(item->phase);
    keyed_t k = {.item = item};
    k.key[0] = !micro;
    k.key[1] = item->micro;
    if (item->phase >= FSDP_TRACE_OUTPUT_GRAD && micro) {
        k.key[2] = 3;
        key_backward(&k);
    } else if (item->phase == FSDP_TRACE_LOSS) {
        k.key[2] = 2;
    } else if (item->phase != FSDP_TRACE_INPUT && micro) {
        k.key[2] = 1;
        key_forward(&k);
    }
    /* A gradient is there before the one of the input leaves the unit. */
    int phase = 2 * (int)item->phase;
    k.key[5] = item->phase == FSDP_TRACE_INPUT_GRAD ? phase + 3 : phase;
    return k;
}

static int
compare_keyed(const void *a, const void *b)
{
    const keyed_t *x = a, *y = b;
    for (int i = 0; i < KEYS; i++)
        if (x->key[i] != y->key[i])
            return x->key[i] < y->key[i] ? -1 : 1;
    const trace_name_t *p = x->item->name, *q = y->item->name;
    if (p->parameter != q->parameter)
        return p->parameter < q->parameter ? -1 : 1;
    return strcmp(p->text, q->text);
}

void
trace_order_part(trace_part_t *part)
{
    keyed_t *list = fsdp_alloc(FSDP_MEM_OTHER, part->num_items * sizeof *list);
    for (size_t i = 0; i < part->num_items; i++)
        list[i] = key_of(&part->item[i]);
    if (part->num_items > 0)
        qsort(list, part->num_items, sizeof *list, compare_keyed);
    for (size_t i = 0; i < part->num_items; i++)
        list[i].item->position = i;
    fsdp_free(list);
}

/* ---- all ranks ----------------------------------------------------------- */

/* A rank's walk through one step. */
typedef struct walk {
    trace_item_t **item; /**< [count], in the rank's order */
    size_t count, at;
    bool waits; /**< for others to come to the same record   */
} walk_t;

typedef struct merge {
    fsdp_trace_t *trace;
    walk_t *walk;
    size_t num_walks;
    int *arrived; /**< [num_records] pieces that were come to          */
    bool *done;   /**< [num_records] */
    size_t count; /**< records in order so far                         */
} merge_t;

/* Tensors that a rank's order does not list come last. */
static int
by_position(const void *a, const void *b)
{
    const trace_item_t *x = *(trace_item_t *const *)a;
    const trace_item_t *y = *(trace_item_t *const *)b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (x->record > y->record) - (x->record < y->record);
}

static void
begin_walk(merge_t *m, trace_part_t *part)
{
    walk_t *walk = &m->walk[m->num_walks++];
    *walk = (walk_t){.count = part->num_items};
    walk->item =
        fsdp_alloc(FSDP_MEM_OTHER, part->num_items * sizeof *walk->item);
    for (size_t i = 0; i < part->num_items; i++)
        walk->item[i] = &part->item[i];
    if (part->num_items > 0)
        qsort(walk->item, walk->count, sizeof *walk->item, by_position);
}

static void
put_next(merge_t *m, size_t record)
{
    m->trace->place[record] = m->count;
    m->trace->happened[m->count++] = record;
    m->done[record] = true;
}

/* Goes on until the end of the step or a record that others have not come to.
 * True: a record was put that others may wait for. */
static bool
go_on(merge_t *m, walk_t *walk)
{
    for (; walk->at < walk->count; walk->at++) {
        size_t record = walk->item[walk->at]->record;
        int pieces = m->trace->record[record].num_pieces;
        if (m->done[record])
            continue;
        if (!walk->waits)
            m->arrived[record]++;
        walk->waits = m->arrived[record] < pieces;
        if (walk->waits)
            return false;
        put_next(m, record);
        if (pieces > 1) {
            walk->at++;
            return true;
        }
    }
    return false;
}

/* Those that waited for what is done now need not. */
static void
wake(merge_t *m)
{
    for (size_t i = 0; i < m->num_walks; i++) {
        walk_t *walk = &m->walk[i];
        if (walk->waits && m->done[walk->item[walk->at]->record])
            walk->waits = false;
    }
}

/* Ranks whose orders contradict each other wait for ever: then the first that
 * waits has its way. */
static bool
break_tie(merge_t *m)
{
    for (size_t i = 0; i < m->num_walks; i++) {
        walk_t *walk = &m->walk[i];
        if (walk->at == walk->count)
            continue;
        put_next(m, walk->item[walk->at]->record);
        return true;
    }
    return false;
}

static void
merge_step(merge_t *m)
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < m->num_walks && !more; i++)
            if (!m->walk[i].waits)
                more = go_on(m, &m->walk[i]);
        if (!more)
            more = break_tie(m);
        wake(m);
    }
    for (size_t i = 0; i < m->num_walks; i++)
        fsdp_free(m->walk[i].item);
    m->num_walks = 0;
}

void
trace_order_records(fsdp_trace_t *trace)
{
    size_t n = trace->num_records;
    merge_t m = {.trace = trace};
    trace->happened = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *trace->happened);
    trace->place = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *trace->place);
    m.walk = fsdp_alloc(FSDP_MEM_OTHER, trace->num_parts * sizeof *m.walk);
    m.arrived = fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *m.arrived);
    m.done = fsdp_calloc(FSDP_MEM_OTHER, n * sizeof *m.done);
    for (size_t p = 0; p < trace->num_parts; p++) {
        begin_walk(&m, &trace->part[p]);
        if (p + 1 == trace->num_parts ||
            trace->part[p + 1].step != trace->part[p].step)
            merge_step(&m);
    }
    FSDP_CHECK(m.count == n, "%zu records of %zu are in order", m.count, n);
    fsdp_free(m.walk);
    fsdp_free(m.arrived);
    fsdp_free(m.done);
}
