/* Phases, the keys of tensors, and a pool of strings. */

#include <string.h>

#include "fsdp/memory.h"
#include "fsdp/random.h"
#include "verify/trace/internal.h"

static const char *const phase_name[FSDP_TRACE_PHASES] = {
#define PHASE_NAME(phase, name) [phase] = name,
    FSDP_TRACE_PHASE_LIST(PHASE_NAME)
#undef PHASE_NAME
};

const char *
fsdp_trace_phase_name(fsdp_trace_phase_t phase)
{
    return phase < FSDP_TRACE_PHASES ? phase_name[phase] : "unknown";
}

static fsdp_trace_phase_t
phase_of(const char *name, size_t length)
{
    for (int p = 0; p < FSDP_TRACE_PHASES; p++)
        if (strlen(phase_name[p]) == length &&
            memcmp(phase_name[p], name, length) == 0)
            return (fsdp_trace_phase_t)p;
    return FSDP_TRACE_PHASES;
}

fsdp_trace_phase_t
fsdp_trace_phase_from_name(const char *name)
{
    return phase_of(name, strlen(name));
}

bool
trace_phase_has_micro(fsdp_trace_phase_t phase)
{
    return phase <= FSDP_TRACE_REDUCED_GRAD;
}

bool
trace_phase_may_be_integer(fsdp_trace_phase_t phase)
{
    return phase == FSDP_TRACE_INPUT || phase == FSDP_TRACE_STATE_STEP;
}

bool
trace_phase_is_of_parameter(fsdp_trace_phase_t phase)
{
    switch (phase) {
    case FSDP_TRACE_GATHERED_PARAMETER:
    case FSDP_TRACE_UNREDUCED_GRAD:
    case FSDP_TRACE_REDUCED_GRAD:
    case FSDP_TRACE_GRAD:
    case FSDP_TRACE_CLIPPED_GRAD:
    case FSDP_TRACE_PARAMETER:
    case FSDP_TRACE_EXP_AVG:
    case FSDP_TRACE_EXP_AVG_SQ:
    case FSDP_TRACE_MOMENTUM_BUFFER:
    case FSDP_TRACE_STATE_STEP:
        return true;
    default:
        return false;
    }
}

/* "-", or digits without a leading zero. */
static bool
parse_micro(const char *text, size_t length, int *micro)
{
    *micro = -1;
    if (length == 1 && text[0] == '-')
        return true;
    if (length < 1 || length > 10 || (length > 1 && text[0] == '0'))
        return false;
    int64_t number = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (text[i] - '0');
    }
    *micro = (int)(number <= TRACE_MAX_MICRO ? number : -1);
    return number <= TRACE_MAX_MICRO;
}

trace_key_kind_t
trace_key_parse(const char *key, fsdp_trace_phase_t *phase, int *micro,
                const char **name)
{
    const char *first = strchr(key, '/');
    const char *second = first != NULL ? strchr(first + 1, '/') : NULL;
    if (second == NULL || second[1] == '\0' ||
        !parse_micro(first + 1, (size_t)(second - first - 1), micro))
        return TRACE_KEY_BAD;
    *name = second + 1;
    *phase = phase_of(key, (size_t)(first - key));
    if (*phase == FSDP_TRACE_PHASES)
        return strncmp(key, "state.", 6) == 0 && *micro < 0
                   ? TRACE_KEY_UNKNOWN_STATE
                   : TRACE_KEY_BAD;
    return trace_phase_has_micro(*phase) == (*micro >= 0) ? TRACE_KEY_GOOD
                                                          : TRACE_KEY_BAD;
}

/* ---- the pool ----------------------------------------------------------- */

static uint64_t
hash_of(const char *text, size_t length)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash ^ hash >> 32;
}

static trace_name_t *
look_up(const trace_pool_t *pool, const char *text, size_t length)
{
    if (pool->num_slots == 0)
        return NULL;
    trace_name_t *at = pool->slot[hash_of(text, length) % pool->num_slots];
    while (at != NULL &&
           (strlen(at->text) != length || memcmp(at->text, text, length) != 0))
        at = at->next;
    return at;
}

static void
put(trace_pool_t *pool, trace_name_t *name)
{
    size_t i = hash_of(name->text, strlen(name->text)) % pool->num_slots;
    name->next = pool->slot[i];
    pool->slot[i] = name;
}

static void
grow(trace_pool_t *pool)
{
    trace_pool_t old = *pool;
    pool->num_slots = old.num_slots > 0 ? 4 * old.num_slots : 256;
    pool->slot =
        fsdp_calloc(FSDP_MEM_OTHER, pool->num_slots * sizeof *pool->slot);
    for (size_t i = 0; i < old.num_slots; i++)
        for (trace_name_t *next, *at = old.slot[i]; at != NULL; at = next) {
            next = at->next;
            put(pool, at);
        }
    fsdp_free(old.slot);
}

trace_name_t *
trace_pool_add(trace_pool_t *pool, const char *text, size_t length)
{
    trace_name_t *name = look_up(pool, text, length);
    if (name != NULL)
        return name;
    if (pool->count >= pool->num_slots)
        grow(pool);
    name = fsdp_alloc(FSDP_MEM_OTHER, sizeof *name + length + 1);
    char *copy = (char *)(name + 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    *name = (trace_name_t){
        .text = copy, .unit = -1, .parameter = -1, .of_unit = -1};
    put(pool, name);
    pool->count++;
    return name;
}

const char *
trace_pool_text(trace_pool_t *pool, const char *text)
{
    return text != NULL ? trace_pool_add(pool, text, strlen(text))->text : NULL;
}

trace_name_t *
trace_pool_find(const trace_pool_t *pool, const char *text)
{
    return look_up(pool, text, strlen(text));
}

void
trace_pool_free(trace_pool_t *pool)
{
    for (size_t i = 0; i < pool->num_slots; i++)
        for (trace_name_t *next, *at = pool->slot[i]; at != NULL; at = next) {
            next = at->next;
            fsdp_free(at);
        }
    fsdp_free(pool->slot);
    *pool = (trace_pool_t){0};
}
