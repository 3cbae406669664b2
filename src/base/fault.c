#include "fsdp/fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
} faults[FSDP_FAULT_COUNT] = {[FSDP_FAULT_NONE] = {"none", "no fault"},
#define ROW(kind, option, what) [kind] = {option, what},
                              FSDP_FAULT_LIST(ROW)
#undef ROW
};

/* `at` is the chosen step, 0 for every step; `step` is the present one. */
static struct {
    fsdp_fault_kind_t kind;
    long at, step;
} chosen;

bool
fsdp_fault(fsdp_fault_kind_t kind)
{
    if (kind == FSDP_FAULT_NONE || kind != chosen.kind)
        return false;
    return chosen.at == 0 ? chosen.step >= 1 : chosen.step == chosen.at;
}

static fsdp_fault_kind_t
find(const char *name, size_t length)
{
    for (int i = FSDP_FAULT_NONE + 1; i < FSDP_FAULT_COUNT; i++)
        if (strlen(faults[i].name) == length &&
            memcmp(faults[i].name, name, length) == 0)
            return (fsdp_fault_kind_t)i;
    return FSDP_FAULT_NONE;
}

/* A whole number of at least 1, or 0 if `text` is none. */
static long
parse_step(const char *text)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return 0;
    errno = 0;
    long step = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' ? step : 0;
}

fsdp_status_t
fsdp_fault_choose(const char *text)
{
    size_t length = strcspn(text, "@");
    fsdp_fault_kind_t kind = find(text, length);
    if (kind == FSDP_FAULT_NONE)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--inject %s: there is no fault of this name; "
                          "--inject list shows those there are",
                          text);
    long at = text[length] == '@' ? parse_step(text + length + 1) : 0;
    if (text[length] == '@' && at == 0)
        return fsdp_error(FSDP_ERR_USAGE,
                          "--inject %s: the step after @ must be a whole "
                          "number from 1 on",
                          text);
    chosen.kind = kind;
    chosen.at = at;
    return FSDP_OK;
}

void
fsdp_fault_choose_none(void)
{
    chosen.kind = FSDP_FAULT_NONE;
    chosen.at = 0;
}

void
fsdp_fault_set_step(long step)
{
    chosen.step = step;
}

fsdp_fault_kind_t
fsdp_fault_chosen(void)
{
    return chosen.kind;
}

static fsdp_fault_kind_t
in_range(fsdp_fault_kind_t kind)
{
    return (unsigned)kind < FSDP_FAULT_COUNT ? kind : FSDP_FAULT_NONE;
}

const char *
fsdp_fault_name(fsdp_fault_kind_t kind)
{
    return faults[in_range(kind)].name;
}

const char *
fsdp_fault_text(fsdp_fault_kind_t kind)
{
    return faults[in_range(kind)].text;
}
