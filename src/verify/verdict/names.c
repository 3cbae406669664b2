/* Which of their names is which of ours: as the table says; else the same name;
 * else what is left when wrappers' prefixes are taken off, if only one name of
 * each side has that left. */

#include <stdlib.h>
#include <string.h>

#include "verify/verdict/internal.h"

enum { MAX_NAME = 4096 };

/** A name of one side, once. */
typedef struct side_name {
    const char *text; /**< borrowed from the trace                          */
    char *bare;       /**< without prefixes, owned                          */
    bool parameter;
    bool unique;       /**< no other one of its side has that               */
    bool taken;        /**< of ours: one of theirs has it                   */
    const char *other; /**< of theirs: ours; NULL: none                      */
} side_name_t;

typedef struct side {
    side_name_t *name; /**< by parameter, then text */
    side_name_t **by_bare;
    size_t count;
} side_t;

struct verdict_names {
    side_t ours, theirs;
};

bool
verdict_is_of_parameter(fsdp_trace_phase_t phase)
{
    switch (phase) {
    case FSDP_TRACE_INPUT:
    case FSDP_TRACE_UNIT_INPUT:
    case FSDP_TRACE_UNIT_OUTPUT:
    case FSDP_TRACE_LOSS:
    case FSDP_TRACE_OUTPUT_GRAD:
    case FSDP_TRACE_INPUT_GRAD:
    case FSDP_TRACE_NORM:
        return false;
    default:
        return true;
    }
}

/* ---- prefixes -------------------------------------------------------------- */

/* The length of a component of `text` that wrappers add, with its dot; 0: it is
 * none.  Those of models may stand at the beginning only. */
static size_t
wrapper_at(const char *text, bool begins)
{
    static const char *const anywhere[] = {"module", "_orig_mod",
                                           "_fsdp_wrapped_module",
                                           "_checkpoint_wrapped_module"};
    static const char *const first[] = {"transformer", "model"};
    const char *dot = strchr(text, '.');
    size_t n = dot != NULL ? (size_t)(dot - text) : strlen(text);
    size_t with_dot = n + (dot != NULL);
    for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++)
        if (n == strlen(anywhere[i]) && memcmp(text, anywhere[i], n) == 0)
            return with_dot;
    for (size_t i = 0; begins && i < sizeof first / sizeof *first; i++)
        if (dot != NULL && n == strlen(first[i]) &&
            memcmp(text, first[i], n) == 0)
            return with_dot;
    return 0;
}

static char *
bare_of(const char *text)
{
    char *bare = fsdp_alloc(FSDP_MEM_OTHER, strlen(text) + 1);
    size_t n = 0;
    while (*text != '\0') {
        size_t skip = wrapper_at(text, n == 0);
        if (skip > 0) {
            text += skip;
            continue;
        }
        do
            bare[n++] = *text;
        while (*text++ != '.' && *text != '\0');
    }
    if (n > 0 && bare[n - 1] == '.')
        n--;
    bare[n] = '\0';
    return bare;
}

/* ---- the two sides ---------------------------------------------------------- */

static int
by_name(const void *a, const void *b)
{
    const side_name_t *x = a, *y = b;
    if (x->parameter != y->parameter)
        return x->parameter ? 1 : -1;
    return strcmp(x->text, y->text);
}

static side_t
side_make(const fsdp_trace_t *trace)
{
    size_t n = fsdp_trace_count(trace), count = 0;
    side_name_t *all = fsdp_alloc(FSDP_MEM_OTHER, n * sizeof *all);
    for (size_t i = 0; i < n; i++) {
        const record_t *r = fsdp_trace_record(trace, i);
        all[i] = (side_name_t){.text = r->name,
                               .parameter = verdict_is_of_parameter(r->phase)};
    }
    if (n > 0)
        qsort(all, n, sizeof *all, by_name);
    for (size_t i = 0; i < n; i++)
        if (count == 0 || by_name(&all[count - 1], &all[i]) != 0)
            all[count++] = all[i];
    for (size_t i = 0; i < count; i++)
        all[i].bare = bare_of(all[i].text);
    side_t side = {all, fsdp_alloc(FSDP_MEM_OTHER, count * sizeof(void *)),
                   count};
    for (size_t i = 0; i < count; i++)
        side.by_bare[i] = &all[i];
    return side;
}

static side_name_t *
side_find(const side_t *side, const char *text, bool parameter)
{
    side_name_t key = {.text = text, .parameter = parameter};
    return side->count > 0
               ? bsearch(&key, side->name, side->count, sizeof key, by_name)
               : NULL;
}

static int
by_bare(const void *a, const void *b)
{
    const side_name_t *const *x = a, *const *y = b;
    if ((*x)->parameter != (*y)->parameter)
        return (*x)->parameter ? 1 : -1;
    return strcmp((*x)->bare, (*y)->bare);
}

/* And marks those whose bare name no other one has. */
static void
sort_bare(const side_t *side)
{
    side_name_t **list = side->by_bare;
    if (side->count > 0)
        qsort(list, side->count, sizeof *list, by_bare);
    for (size_t i = 0; i < side->count; i++) {
        bool before = i > 0 && by_bare(&list[i - 1], &list[i]) == 0;
        bool after =
            i + 1 < side->count && by_bare(&list[i], &list[i + 1]) == 0;
        list[i]->unique = !before && !after;
    }
}

/* The only one with that bare name; NULL if there is none or more. */
static side_name_t *
side_find_bare(const side_t *side, const side_name_t *like)
{
    side_name_t **found = side->count > 0
                              ? bsearch(&like, side->by_bare, side->count,
                                        sizeof *side->by_bare, by_bare)
                              : NULL;
    return found != NULL && (*found)->unique ? *found : NULL;
}

static void
side_free(side_t *side)
{
    for (size_t i = 0; i < side->count; i++)
        fsdp_free(side->name[i].bare);
    fsdp_free(side->by_bare);
    fsdp_free(side->name);
}

/* ---- alignment ---------------------------------------------------------------- */

static void
take(side_name_t *theirs, side_name_t *ours)
{
    if (theirs->other != NULL || ours == NULL || ours->taken)
        return;
    theirs->other = ours->text;
    ours->taken = true;
}

/* What the table says of all names.  A line without * must have a meaning. */
static fsdp_status_t
by_table(verdict_names_t *names, const char *path, const rename_table_t *table)
{
    char ours[MAX_NAME];
    for (size_t t = 0; t < table->count; t++) {
        bool met = strchr(table->rule[t].theirs, '*') != NULL;
        for (size_t i = 0; i < names->theirs.count; i++) {
            side_name_t *name = &names->theirs.name[i];
            if (!rename_table_apply(table, t, name->text, ours, sizeof ours))
                continue;
            side_name_t *other = side_find(&names->ours, ours, name->parameter);
            if (other == NULL)
                continue;
            take(name, other);
            met = true;
        }
        if (!met)
            return fsdp_error(
                FSDP_ERR_INPUT,
                "%s, line %d: either theirs has no \"%s\" or ours "
                "no \"%s\"; fsdp inspect lists a file's names",
                path, table->rule[t].line, table->rule[t].theirs,
                table->rule[t].ours);
    }
    return FSDP_OK;
}

static void
by_themselves(verdict_names_t *names)
{
    for (size_t i = 0; i < names->theirs.count; i++) {
        side_name_t *name = &names->theirs.name[i];
        take(name, side_find(&names->ours, name->text, name->parameter));
    }
    for (size_t i = 0; i < names->theirs.count; i++) {
        side_name_t *name = &names->theirs.name[i];
        if (name->unique)
            take(name, side_find_bare(&names->ours, name));
    }
}

static size_t
count_parameters(const side_t *side)
{
    size_t count = 0;
    for (size_t i = 0; i < side->count; i++)
        count += side->name[i].parameter;
    return count;
}

static const char *
first_parameter(const side_t *side)
{
    for (size_t i = 0; i < side->count; i++)
        if (side->name[i].parameter)
            return side->name[i].text;
    return "";
}

/* Of two traces with parameters, some must be the same. */
static fsdp_status_t
check_common(const verdict_names_t *names)
{
    bool both = count_parameters(&names->ours) > 0 &&
                count_parameters(&names->theirs) > 0;
    for (size_t i = 0; i < names->theirs.count; i++) {
        const side_name_t *name = &names->theirs.name[i];
        if (name->other != NULL && (name->parameter || !both))
            return FSDP_OK;
    }
    if (!both)
        return fsdp_error(FSDP_ERR_INPUT,
                          "the two traces have nothing of the same name in "
                          "common: is one of them empty?");
    return fsdp_error(FSDP_ERR_INPUT,
                      "the two traces have no parameter in common: theirs has "
                      "\"%s\", ours \"%s\" for instance; --rename FILE with "
                      "lines \"theirs ours\" tells which is which",
                      first_parameter(&names->theirs),
                      first_parameter(&names->ours));
}

fsdp_status_t
verdict_names_create(const fsdp_trace_t *ours, const fsdp_trace_t *theirs,
                     const char *rename, verdict_names_t **out)
{
    rename_table_t table = {0};
    fsdp_status_t status = FSDP_OK;
    verdict_names_t *names = fsdp_calloc(FSDP_MEM_OTHER, sizeof *names);
    names->ours = side_make(ours);
    names->theirs = side_make(theirs);
    sort_bare(&names->ours);
    sort_bare(&names->theirs);
    if (rename != NULL)
        status = rename_table_read(rename, &table);
    if (status == FSDP_OK)
        status = by_table(names, rename, &table);
    rename_table_free(&table);
    if (status == FSDP_OK) {
        by_themselves(names);
        status = check_common(names);
    }
    if (status != FSDP_OK)
        verdict_names_destroy(&names);
    *out = names;
    return status;
}

void
verdict_names_destroy(verdict_names_t **names)
{
    if (*names == NULL)
        return;
    side_free(&(*names)->ours);
    side_free(&(*names)->theirs);
    fsdp_free(*names);
    *names = NULL;
}

const char *
verdict_names_ours(const verdict_names_t *names, const record_t *theirs)
{
    const side_name_t *name = side_find(&names->theirs, theirs->name,
                                        verdict_is_of_parameter(theirs->phase));
    return name != NULL ? name->other : NULL;
}
