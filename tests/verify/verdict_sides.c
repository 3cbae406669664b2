#include "verdict_sides.h"

#include <stdio.h>
#include <string.h>

#include "fsdp/memory.h"
#include "mck.h"

/* What is said of a run of W ranks; %s: more members. */
static const char about[] =
    "{\"format\":\"libfsdp-trace\",\"version\":1,\"producer\":\"PyTorch by "
    "hand\",\"api\":\"fsdp2\",\"world_size\":%d,\"ranks\":[%s],"
    "\"mesh\":{\"replicate\":1,\"shard\":%d,\"tensor\":1},"
    "\"gradient_sync\":\"each\",\"loss\":{\"kind\":\"mse\",\"average\":"
    "\"rank\",\"scale\":1},\"precision\":{\"dtype\":\"float32\"},%s,"
    "\"parameters\":[{\"name\":\"%s\",\"shape\":[4],\"dtype\":\"float32\","
    "\"unit\":\"u\"%s}],\"units\":[\"u\"]}";

static const char plain[] = "\"micro_batches\":1,\"steps\":[{\"step\":1,"
                            "\"lr\":0.125}],\"optimizer\":{\"name\":\"sgd\","
                            "\"momentum\":0}";

side_t
side(const char *folder, int world)
{
    return (side_t){.folder = folder,
                    .settings = plain,
                    .name = "w",
                    .own = "",
                    .world = world};
}

/* Four values of one rank. */
void
side_add(side_t *s, long step, int rank, const char *phase, const char *micro,
         const float values[4])
{
    int k = s->count++;
    ck_assert_int_lt(k, 24);
    snprintf(s->key[k], sizeof s->key[k], "%s/%s/%s", phase, micro, s->name);
    s->tensor[k] = (hand_tensor_t){s->key[k], "[4]", 4, {0}, NULL};
    memcpy(s->tensor[k].values, values, 4 * sizeof *values);
    s->rank[k] = rank;
    s->step[k] = step;
}

/* The same in all elements, on rank 0. */
void
side_add_all(side_t *s, long step, const char *phase, const char *micro,
             float value)
{
    const float values[4] = {value, value, value, value};
    side_add(s, step, 0, phase, micro, values);
}

void
side_add_input(side_t *s, int rank, int micro, const float *values, int numel)
{
    int k = s->count++;
    ck_assert_int_lt(k, 24);
    snprintf(s->key[k], sizeof s->key[k], "input/%d/x", micro);
    s->tensor[k] = (hand_tensor_t){
        s->key[k], numel == 4 ? "[2,2]" : "[4,2]", (size_t)numel, {0}, NULL};
    memcpy(s->tensor[k].values, values, (size_t)numel * sizeof *values);
    s->rank[k] = rank;
    s->step[k] = 1;
}

static void
write_part(const side_t *s, long step, int rank)
{
    hand_tensor_t list[24];
    char path[128];
    size_t n = 0;
    bool met = false;
    for (int k = 0; k < s->count; k++)
        met |= s->step[k] == step;
    for (int k = 0; k < s->count; k++)
        if (s->step[k] == step && s->rank[k] == rank) {
            list[n] = s->tensor[k];
            list[n++].key = s->key[k];
        }
    if (!met)
        return;
    snprintf(path, sizeof path, "%s/step-%06ld/rank-%05d.safetensors",
             s->folder, step, rank);
    hand_put_tensors(path, list, n);
    snprintf(path, sizeof path, "%s/step-%06ld/rank-%05d.json", s->folder, step,
             rank);
    char text[80];
    snprintf(text, sizeof text, "{\"rank\":%d,\"step\":%ld}", rank, step);
    hand_put(path, text);
}

static void
write_side(const side_t *s)
{
    char text[1500], path[64];
    const char *const ranks[] = {"", "0", "0,1", "0,1,2", "0,1,2,3"};
    for (long step = 0; step <= 2; step++)
        for (int rank = 0; rank < s->world; rank++)
            write_part(s, step, rank);
    snprintf(text, sizeof text, about, s->world, ranks[s->world], s->world,
             s->settings, s->name, s->own);
    snprintf(path, sizeof path, "%s/trace.json", s->folder);
    hand_put(path, text);
}

/* The verdict on theirs; the caller destroys it. */
fsdp_status_t
judge(const side_t *ours, const side_t *theirs, const char *rename,
      fsdp_verdict_t **verdict)
{
    char a[100], b[100], c[100];
    fsdp_verdict_options_t options = {.rename = rename != NULL ? c : NULL};
    hand_trace_begin();
    write_side(ours);
    write_side(theirs);
    if (rename != NULL)
        hand_put("names", rename);
    snprintf(a, sizeof a, "%s/%s", hand_folder, ours->folder);
    snprintf(b, sizeof b, "%s/%s", hand_folder, theirs->folder);
    snprintf(c, sizeof c, "%s/names", hand_folder);
    fsdp_status_t status = fsdp_verdict_make(a, b, &options, verdict);
    hand_trace_end();
    return status;
}

/* That the verdict is `kind`, and first wrong (if it is) the phase. */
void
expect_named(const side_t *ours, const side_t *theirs, const char *rename,
             fsdp_verdict_kind_t kind, const char *phase, uint64_t element)
{
    fsdp_verdict_t *v = NULL;
    fsdp_status_t status = judge(ours, theirs, rename, &v);
    ck_assert_msg(status == FSDP_OK, "%s", fsdp_error_message());
    const fsdp_verdict_tensor_t *first = v->first_wrong;
    ck_assert_msg(v->kind == kind, "%s, not %s; first %s by %s",
                  fsdp_verdict_kind_name(v->kind), fsdp_verdict_kind_name(kind),
                  first != NULL ? fsdp_trace_phase_name(first->theirs->phase)
                                : "nothing",
                  first != NULL ? first->rule : "nothing");
    if (phase != NULL) {
        ck_assert_ptr_nonnull(first);
        ck_assert_str_eq(fsdp_trace_phase_name(first->theirs->phase), phase);
        ck_assert_uint_eq(first->element, element);
    }
    fsdp_verdict_destroy(&v);
    ck_assert_ptr_null(v);
    mck_assert(fsdp_memory_live_blocks() == 0);
}

void
expect(const side_t *ours, const side_t *theirs, fsdp_verdict_kind_t kind,
       const char *phase)
{
    expect_named(ours, theirs, NULL, kind, phase, 0);
}
