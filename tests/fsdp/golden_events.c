#include "golden_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fsdp/events.h"
#include "fsdp/status.h"
#include "mck.h"

enum { MAX_EVENTS = 256 };

typedef struct event_log {
    int count;
    fsdp_event_kind_t kind[MAX_EVENTS];
    char unit[MAX_EVENTS][48];
    fsdp_training_state_t state[MAX_EVENTS];
} event_log_t;

static event_log_t seen;

static void
record(void *context, const fsdp_event_t *event)
{
    (void)context;
    if (seen.count == MAX_EVENTS)
        return;
    seen.kind[seen.count] = event->kind;
    snprintf(seen.unit[seen.count], sizeof seen.unit[0], "%s", event->unit);
    seen.state[seen.count++] = event->state;
}

/* ---- the golden record -------------------------------------------------- */

static fsdp_json_t *golden;

void
golden_read(void)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/golden/fsdp_events.json",
             getenv("FSDP_DATA_DIR"));
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s cannot be opened", path);
    static char text[4000000];
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    ck_assert_msg(fsdp_json_parse(path, text, length, &golden) == FSDP_OK, "%s",
                  fsdp_error_message());
}

void
golden_free(void)
{
    fsdp_json_destroy(&golden);
}

static const fsdp_json_t *
find_phase(const char *scenario, const char *phase)
{
    const fsdp_json_t *all = fsdp_json_member(golden, "scenarios");
    for (size_t i = 0; i < fsdp_json_size(all); i++) {
        const fsdp_json_t *s = fsdp_json_at(all, i);
        if (strcmp(fsdp_json_get_string(fsdp_json_member(s, "name")),
                   scenario) != 0)
            continue;
        const fsdp_json_t *phases = fsdp_json_member(s, "phases");
        for (size_t p = 0; p < fsdp_json_size(phases); p++) {
            const fsdp_json_t *ph = fsdp_json_at(phases, p);
            if (strcmp(fsdp_json_get_string(fsdp_json_member(ph, "phase")),
                       phase) == 0)
                return ph;
        }
    }
    return NULL;
}

static int
kind_of(const char *name)
{
    static const char *const names[] = {"unshard",    "wait_for_unshard",
                                        "reshard",    "reduce_scatter",
                                        "all_reduce", "post_backward"};
    for (int k = 0; k < FSDP_EVENT_KINDS; k++)
        if (strcmp(name, names[k]) == 0)
            return k;
    return -1;
}

static int
state_of(const char *name)
{
    static const char *const names[] = {"IDLE", "FORWARD", "PRE_BACKWARD",
                                        "POST_BACKWARD"};
    for (int k = 0; k < 4; k++)
        if (name != NULL && strcmp(name, names[k]) == 0)
            return k;
    return -1; /* collectives carry a size instead */
}

/* Is the event of that kind, for what the loops below compare?  PyTorch starts
 * an all-reduce at once, on a stream where it waits for the reduce-scatter; here
 * it starts when that has come, which is before the next one starts.  So
 * all-reduces are compared by themselves. */
static bool
is_compared(int kind, bool all_reduces)
{
    return kind >= 0 && (kind == FSDP_EVENT_ALL_REDUCE) == all_reduces;
}

static int
next_seen(int n, bool all_reduces)
{
    while (n < seen.count && !is_compared((int)seen.kind[n], all_reduces))
        n++;
    return n;
}

static void
expect_event(const char *scenario, const char *phase, const fsdp_json_t *e,
             int n)
{
    const char *what = fsdp_json_get_string(fsdp_json_at(e, 0));
    const char *unit = fsdp_json_get_string(fsdp_json_at(e, 1));
    int state = state_of(fsdp_json_get_string(fsdp_json_at(e, 2)));
    ck_assert_msg(n < seen.count, "%s, %s: %s \"%s\" did not happen", scenario,
                  phase, what, unit);
    ck_assert_msg(
        (int)seen.kind[n] == kind_of(what) && strcmp(seen.unit[n], unit) == 0,
        "%s, %s, event %d: kind %d \"%s\" instead of %s \"%s\"", scenario,
        phase, n, (int)seen.kind[n], seen.unit[n], what, unit);
    ck_assert_msg(state < 0 || (int)seen.state[n] == state,
                  "%s, %s, event %d (%s \"%s\"): training state %d instead "
                  "of %d",
                  scenario, phase, n, what, unit, (int)seen.state[n], state);
}

static void
expect_events(const char *scenario, const char *phase, bool all_reduces)
{
    const fsdp_json_t *ph = find_phase(scenario, phase);
    ck_assert_msg(ph != NULL, "no phase %s of %s", phase, scenario);
    const fsdp_json_t *trace = fsdp_json_member(ph, "trace");
    int n = next_seen(0, all_reduces);
    for (size_t i = 0; i < fsdp_json_size(trace); i++) {
        const fsdp_json_t *e = fsdp_json_at(trace, i);
        int kind = kind_of(fsdp_json_get_string(fsdp_json_at(e, 0)));
        if (!is_compared(kind, all_reduces))
            continue;
        expect_event(scenario, phase, e, n);
        n = next_seen(n + 1, all_reduces);
    }
    ck_assert_msg(n == seen.count, "%s, %s: too many events: kind %d \"%s\"",
                  scenario, phase, (int)seen.kind[n], seen.unit[n]);
}

/* Each all-reduce follows its group's reduce-scatter, before the next one. */
static void
expect_all_reduces_in_place(const char *scenario, const char *phase)
{
    const char *scattered = NULL;
    for (int n = 0; n < seen.count; n++) {
        if (seen.kind[n] == FSDP_EVENT_REDUCE_SCATTER)
            scattered = seen.unit[n];
        if (seen.kind[n] != FSDP_EVENT_ALL_REDUCE)
            continue;
        ck_assert_msg(scattered != NULL && strcmp(seen.unit[n], scattered) == 0,
                      "%s, %s: all-reduce of \"%s\" out of place", scenario,
                      phase, seen.unit[n]);
    }
}

void
golden_expect(const char *scenario, const char *phase)
{
    expect_events(scenario, phase, false);
    expect_events(scenario, phase, true);
    expect_all_reduces_in_place(scenario, phase);
    seen.count = 0;
}

void
golden_watch(bool on)
{
    seen.count = 0;
    fsdp_set_event_hook(on ? record : NULL, NULL);
}

static size_t
read_size(const fsdp_json_t *value)
{
    int64_t size = 0;
    ck_assert(fsdp_json_get_integer(value, &size));
    return (size_t)size;
}

static void
read_shape(const fsdp_json_t *list, size_t shape[2])
{
    shape[1] = 1;
    for (size_t d = 0; d < fsdp_json_size(list); d++)
        shape[d] = read_size(fsdp_json_at(list, d));
}

bool
golden_shard(size_t i, int rank, int *world_size, size_t shape[2],
             size_t local[2], size_t padded[2])
{
    const fsdp_json_t *all = fsdp_json_member(golden, "shards");
    if (i >= fsdp_json_size(all))
        return false;
    const fsdp_json_t *row = fsdp_json_at(all, i);
    *world_size = (int)read_size(fsdp_json_member(row, "world_size"));
    read_shape(fsdp_json_member(row, "shape"), shape);
    read_shape(fsdp_json_member(row, "padded"), padded);
    if (rank < *world_size)
        read_shape(fsdp_json_at(fsdp_json_member(row, "local"), (size_t)rank),
                   local);
    return true;
}
